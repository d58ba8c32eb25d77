/* Knobs on pictures that need no model: the KL estimators, and the next token. Without this script the picture
   stays as the notebook left it. The numbers are Python's: the formulas of rlhf_nb.show.inspectors and
   rlhf_nb.base.sampling, and the random numbers of torch's generator with seed 0. */
(() => {
  const sum = xs => xs.reduce((a, b) => a + b, 0), mean = xs => sum(xs) / xs.length
  const std = xs => Math.sqrt(mean(xs.map(x => (x - mean(xs)) ** 2)))
  const escaped = text => String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt()};`)
  const log_softmax = z => {
    const top = Math.max(...z), log_sum = top + Math.log(sum(z.map(x => Math.exp(x - top))))
    return z.map(x => x - log_sum) }
  const bare = digits => digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits
  const general = (x, n) => {                               // Python's f"{x:.4g}"
    if (Math.abs(x) < 1e-12 || !isFinite(x)) return isFinite(x) ? "0" : "–"
    const [digits, power] = x.toExponential(n - 1).split("e")
    if (power >= -4 && power < n) return bare(x.toFixed(n - 1 - power))
    return `${bare(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`
  }
  const brief = x => {
    const size = Math.abs(x)
    return size >= 1000 && size < 1e6 ? x.toFixed(0) : general(x, size >= .01 && size < 1000 ? 3 : 2) }

  // ---- as rlhf_nb.show.pages draws
  const BLUE = "#5b8fbe", ORANGE = "#ee9a57"
  const words_at = (x, y, text, more = "") =>
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="11" fill="currentColor" ${more}>${escaped(text)}</text>`
  const row_of = (tag, cells) => `<tr>${cells.map(x =>
    `<${tag}>${typeof x == "number" ? general(x, 4) : escaped(x)}</${tag}>`).join("")}</tr>`
  const table = (head, rows) => `<details><summary>All numbers</summary><table>${row_of("th", head)}${
    rows.map(r => row_of("td", r)).join("")}</table></details>`
  const svg = (said, height, drawn, width = 680) => `<svg role="img" aria-label="${escaped(said)}" width="${width}" viewBox="0 0 ${width} ${
    height}" style="max-width:100%">${drawn}</svg>`

  // ---- random numbers: mt19937, a double from 53 bits of two words
  const generator = seed => {
    const s = new Uint32Array(624).fill(seed)
    for (let i = 1; i < 624; i++) s[i] = Math.imul(1812433253, s[i - 1] ^ (s[i - 1] >>> 30)) + i
    let at = 624
    const word = () => {
      if (at == 624) for (let i = at = 0; i < 624; i++) {
        const y = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7fffffff)
        s[i] = s[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0) }
      let y = s[at++]
      y ^= y >>> 11; y ^= (y << 7) & 0x9d2c5680; y ^= (y << 15) & 0xefc60000
      return (y ^ (y >>> 18)) >>> 0 }
    return () => ((word() & 0x1fffff) * 2 ** 32 + word()) * 2 ** -53
  }

  // ---- KL: k1 = d, k2 = d²/2, k3 = e^-d - 1 + d of words sampled from the policy
  const ESTIMATORS = { k1: d => d, k2: d => d * d / 2, k3: d => Math.expm1(-d) + d }
  const SLOPES = { k1: () => 1, k2: d => d, k3: d => -Math.expm1(-d), true: d => d + 1 }
  function kl({ logits, direction }, { mu, temperature, batch }) {
    const z = logits.map((x, i) => (x + mu * direction[i]) / temperature)
    const logp = log_softmax(z), ref = log_softmax(logits), p = logp.map(Math.exp), d = logp.map((x, i) => x - ref[i])
    const upto = p.map((_, i) => sum(p.slice(0, i + 1)))
    const random = generator(0), drawn = Array.from({ length: 400 * batch }, () => {
      const u = random() * upto.at(-1)
      return upto.findIndex(x => x >= u) })
    const samples = Object.fromEntries(Object.entries(ESTIMATORS).map(([k, f]) => [k,
      Array.from({ length: 400 }, (_, i) => mean(drawn.slice(i * batch, (i + 1) * batch).map(w => f(d[w]))))]))
    const along = [direction.map(s => (s - sum(p.map((x, i) => x * direction[i]))) / temperature),
                   z.map(x => sum(p.map((y, i) => y * z[i])) - x)]
    const slopes = Object.fromEntries(["true", "k1", "k2", "k3"].map(k => [k,
      along.map(g => sum(p.map((x, i) => x * SLOPES[k](d[i]) * g[i])))]))
    return kl_page({ ...samples, true: [sum(p.map((x, i) => x * d[i]))] }, slopes)
  }
  function kl_page(samples, slopes) {
    const truth = samples.true[0], names = Object.keys(ESTIMATORS)
    const pool = names.flatMap(k => samples[k]).sort((a, b) => a - b), edge = Math.floor(pool.length / 100)
    let low = Math.min(pool[edge], truth), high = Math.max(pool.at(-edge), truth)
    if (high - low < 1e-6) [low, high] = [low - .5, high + .5]
    const place = 90 + 300 * (truth - low) / (high - low)
    let drawn = names.map((k, i) => {
      const count = Array(24).fill(0), top = 20 + 70 * i
      for (const x of samples[k]) count[Math.min(23, Math.max(0, Math.trunc((x - low) / (high - low) * 24)))]++
      const tall = count.map(n => 48 * n / Math.max(...count))
      return words_at(2, top + 20, k, 'font-weight="bold"') + tall.map((t, j) => `<rect x="${(90 + 12.5 * j).toFixed(1)}" width="11.5" fill="${
        BLUE}" y="${(top + 50 - t).toFixed(1)}" height="${t.toFixed(1)}"/>`).join("")
        + words_at(2, top + 34, mean(samples[k]).toFixed(3)) + words_at(2, top + 48, `± ${std(samples[k]).toFixed(3)}`)
        + `<path d="M90 ${top + 50}H390" stroke="currentColor"/><path d="M${place.toFixed(1)} ${top - 6}V${
          top + 52}" stroke="${ORANGE}" stroke-width="2"/>` + words_at(place + 4, top, `true ${truth.toFixed(3)}`)
    }).join("")
    drawn += words_at(90, 226, brief(low)) + words_at(240, 240, "means of 400 batches, nats", 'text-anchor="middle"')
      + words_at(390, 226, brief(high), 'text-anchor="end"')
    const said = `exact KL ${truth.toFixed(3)}; ` + names.map(k => `${k} ${mean(samples[k]).toFixed(3)} ± ${std(samples[k]).toFixed(3)}`).join(", ")
    return [said, svg(said, 250, drawn + arrows(slopes))
      + table(["", "mean", "slope along mu", "slope along log T"], Object.entries(samples).map(([k, x]) => [k, mean(x), ...slopes[k]]))]
  }
  function arrows(slopes) {
    const largest = Math.max(...Object.values(slopes).flat().map(Math.abs)) || 1
    return '<path d="M430 130H660M545 20V240" stroke="currentColor" stroke-opacity=".3"/>'
      + Object.entries(slopes).map(([name, [a, b]], i) => {
        const x = 545 + 90 * a / largest, y = 130 - 90 * b / largest
        const [color, width] = name == "true" ? [ORANGE, 7] : [BLUE, 2]
        return (Math.hypot(x - 545, y - 130) < 2
          ? `<circle cx="545" cy="130" r="${5 + i}" fill="none" stroke="${color}" stroke-width="2"/>`
          : `<path d="M545 130L${x.toFixed(1)} ${y.toFixed(1)}" stroke="${color}" stroke-width="${width}"/><circle cx="${
            x.toFixed(1)}" cy="${y.toFixed(1)}" r="${width / 2 + 2}" fill="${color}"/>`) + words_at(x + 8, y - 18 + 12 * i, name)
      }).join("") + words_at(652, 145, "μ") + words_at(550, 28, "log T") + words_at(430, 14, "gradient when used as a loss")
  }

  // ---- the next token: temperature, then top-k, then top-p
  function sampled(logits, temperature, k, p) {
    const order = logits.map((_, i) => i).sort((a, b) => logits[b] - logits[a])
    const kept = temperature == 0 ? order.slice(0, 1) : k > 0 ? order.slice(0, k) : order
    let prob = log_softmax(kept.map(i => temperature == 0 ? 0 : logits[i] / temperature)).map(Math.exp), before = 0
    if (p < 1) prob = prob.map(x => (before += x) - x >= p ? 0 : x)
    const whole = sum(prob), out = logits.map(() => 0)
    kept.forEach((i, j) => { out[i] = prob[j] / whole })
    return out }
  function next({ words, logits }, { temperature, "top-k": k, "top-p": p }) {
    const raw = log_softmax(logits).map(Math.exp), drawn = sampled(logits, temperature, k, p)
    const top = raw.map((_, i) => i).sort((a, b) => raw[b] - raw[a]).slice(0, 12)
    const size = 380 / Math.max(raw[top[0]], ...drawn), percent = x => `${(100 * x).toFixed(1)}%`
    const bars = top.map((i, j) => {
      const y = 20 * j + 24, note = `${percent(raw[i])} → ${drawn[i] ? percent(drawn[i]) : "never"}`
      return words_at(112, y + 12, words[i].trim() || `'${words[i]}'`, 'text-anchor="end"')
        + `<rect x="120" y="${y}" height="16" width="${(raw[i] * size).toFixed(1)}" fill="currentColor" fill-opacity=".15" stroke="currentColor" stroke-opacity=".5"/>`
        + `<rect x="120" y="${y + 4}" height="8" width="${(drawn[i] * size).toFixed(1)}" fill="${ORANGE}"/>`
        + words_at(126 + Math.max(raw[i], drawn[i]) * size, y + 12, note)
    }).join("")
    const rest = Math.max(1 - sum(top.map(i => drawn[i])), 0), entropy = -sum(drawn.map(x => x && x * Math.log(x)))
    const said = `${drawn.filter(x => x).length} of ${raw.length} tokens can be drawn; ${percent(rest)} on those not shown; entropy ${entropy.toFixed(2)} nats`
    return [said, svg(`next token: ${said}`, 20 * top.length + 34, words_at(120, 14, said, 'font-weight="bold"') + bars)
      + table(["token", "probability", "sampled with"], top.map(i => [words[i], raw[i], drawn[i]]))]
  }

  // ---- the loss laboratory: how hard a loss pushes one token; rlhf_nb.grpo, rlhf_nb.dpo and docs/moving.py
  const sigma = x => 1 / (1 + Math.exp(-x)), free = [Infinity, Infinity], narrow = [3e-4, 4e-4]
  const METHODS = [["RLOO", "clipped", "sum", 0, free], ["REINFORCE", "clipped", "sum", 0, free], ["GRPO", "clipped", "grpo", 0, [.2, .2]],
    ["Dr. GRPO", "clipped", "dr_grpo", 0, [.2, .2]], ["DAPO", "clipped", "dapo", 0, [.2, .28]], ["GSPO", "clipped", "grpo", 1, narrow],
    ["LUSPO", "clipped", "sum", 1, narrow], ["CISPO", "cispo", "dapo", 0, [1, .2]], ["SAPO", "sapo", "grpo", 0, [.2, .2]], ["PPO", "clipped", "dapo", 0, [.2, .2]]]
  const GAINS = {                                           // derivative of the gain by log ρ
    clipped: (r, a, [low, high]) => a > 0 && r > 1 + high || a < 0 && r < 1 - low ? 0 : r * a,
    cispo: (r, a, [low, high]) => Math.min(Math.max(r, 1 - low), 1 + high) * a,
    sapo: (r, a) => { const tau = a > 0 ? 1 : 1.05, s = sigma(tau * (r - 1)); return 4 * s * (1 - s) * r * a } }
  const COUNTS = { sum: n => 1, grpo: n => 8 / n, dr_grpo: n => 1, dapo: n => 16 / (n + 8) }
  const of_f = (f, slope) => (g, b) => b * slope(g) * sigma(-b * (f(g) - f(0)))
  const PAIRS = { DPO: (g, b) => b * sigma(-b * g), cDPO: (g, b) => b * (.9 * sigma(-b * g) - .1 * sigma(b * g)),
    "robust DPO": (g, b) => b * (.9 * sigma(-b * g) + .1 * sigma(b * g)) / .8, hinge: (g, b) => b * g < 1 ? b : 0, IPO: (g, b) => 1 / b - 2 * g,
    "DPO, forward KL": of_f(u => -Math.exp(-u), u => Math.exp(-u)), "DPO, Jensen-Shannon": of_f(u => u - Math.log1p(Math.exp(u)), u => sigma(-u)),
    "DPO, alpha .5": of_f(u => 2 - 2 * Math.exp(-u / 2), u => Math.exp(-u / 2)) }
  const number = x => x.toFixed(3).replace("-0.000", "0.000")
  const bars = (rows, left, head) => words_at(left, 14, head, 'font-weight="bold"') + rows.map(([name, values], i) => {
    const y = 24 + 24 * i, most = Math.max(...rows.flatMap(([, v]) => v.map(Math.abs))) || 1
    return words_at(left, y + 13, name) + values.map((v, k) => { const wide = 70 * Math.abs(v) / most
      return `<rect x="${(left + 175 - (v < 0 ? wide : 0)).toFixed(1)}" y="${y + 9 * k}" width="${wide.toFixed(1)}" height="8" fill="${v > 0 ? ORANGE : BLUE}"${k ? ' fill-opacity=".5"' : ""}/>` }).join("")
      + words_at(left + 255, y + 13, values.map(number).join(" ")) }).join("")
  function losses(_, { ratio, advantage: a, length: n, gap, beta }) {
    const family = METHODS.map(([name, gain, count, whole, clip]) => [name, [ratio, 1].map((r, k) =>
      k && n == 1 ? 0 : COUNTS[count](n) * GAINS[gain](whole ? ratio ** (1 / n) : r, a, clip))])
    const pairs = Object.entries(PAIRS).map(([name, push]) => [name, [push(gap, beta)]])
    const said = "push on log π: " + family.map(([k, v]) => `${k} ${number(v[0])}`).join(", ")
    return [said, svg(said, 270, bars(family, 2, "this token, and below it another of its answer") + bars(pairs, 380, "a token of the chosen answer"), 720)
      + table(["method", "this token", "another"], [...family.map(([k, v]) => [k, ...v.map(number)]), ...pairs.map(([k, v]) => [k, number(v[0]), ""])])]
  }

  // ---- chapters 06, 08, 09, 10, 20; each as docs/moving.py draws it
  const plus = x => (x < 0 ? "" : "+") + x.toFixed(2), signed = x => plus(x).replace("-0.00", "+0.00")
  const tint = (x, most) => (x > 0 ? ORANGE : BLUE) + Math.round(108 * Math.min(Math.abs(x) / most, 1)).toString(16).padStart(2, "0")
  function tree({ words, texts, responses, ref, reward }, { beta, n }) {
    const now = n ? ref.map((l, i) => {                     // the best of n: u^n - (u - l)^n, shared in proportion
      const chance = test => sum(ref.map((x, j) => test(reward[j], reward[i]) ? Math.exp(x) : 0))
      const level = chance((a, b) => a == b), upto = chance((a, b) => a <= b)
      return l - Math.log(level) + Math.log(upto ** n - Math.max(upto - level, 0) ** n)
    }) : log_softmax(ref.map((l, i) => l + reward[i] / beta))
    const p = now.map(Math.exp), kl = sum(p.map((x, i) => x && x * (now[i] - ref[i]))), gain = sum(p.map((x, i) => x * reward[i]))
    const top = Math.max(...ref.map((l, i) => l + reward[i] / beta))
    const log_z = beta && beta * (top + Math.log(sum(ref.map((l, i) => Math.exp(l + reward[i] / beta - top)))))
    const said = n ? `best of ${n}: reward ${plus(gain)}, KL ${kl.toFixed(2)} nats`
      : `beta ${beta.toFixed(2)}: reward ${plus(gain)}, KL ${kl.toFixed(2)} nats, beta log Z ${plus(log_z)}`
    const rows = new Map()                                  // prefix -> rows that begin with it
    responses.forEach((y, i) => { for (let k = 0; k <= y.length; k++) {
      const key = y.slice(0, k).join()
      rows.set(key, [...rows.get(key) || [], i]) } })
    const drawn = [...rows].map(([key, of]) => ({ of, prefix: key ? key.split(",").map(Number) : [] }))
      .sort((a, b) => { const k = a.prefix.findIndex((x, i) => x != b.prefix[i])
        return k < 0 || k >= b.prefix.length ? a.prefix.length - b.prefix.length : a.prefix[k] - b.prefix[k] })
      .map(({ of, prefix }) => {
        const mass = sum(of.map(i => p[i])), w = 680 * mass, x = 680 * sum(p.slice(0, of[0])), y = 22 + 46 * prefix.length
        if (w < .3) return ""
        const value = sum(of.map(i => p[i] * reward[i])) / mass, word = prefix.length ? words[prefix.at(-1)] : "start"
        const middle = (text, at) => words_at(x + w / 2, y + at, text, 'text-anchor="middle"')
        return `<rect x="${x.toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="44" fill="${tint(value, 3)}" stroke="currentColor" stroke-opacity=".3"/>`
          + (w > 34 ? middle(word, 19) + middle(signed(value), 34) : w > 12
            ? words_at(x + w / 2 + 4, y + 40, word, `transform="rotate(-90 ${(x + w / 2 + 4).toFixed(1)} ${y + 40})"`) : "") }).join("")
    const best = p.map((_, i) => i).sort((a, b) => +p[b].toFixed(9) - +p[a].toFixed(9)).slice(0, 8)
    return [said, svg(said, 210, words_at(2, 14, said, 'font-weight="bold"') + drawn)
      + table(["response", "reward", "reference", "now"], best.map(i => [texts[i], reward[i], Math.exp(ref[i]), p[i]]))]
  }
  function clip(_, { cliprange: e, ratio }) {
    const rows = [], drawn = [1, -1].map((a, k) => {
      const loss_at = r => -Math.min(r * a, Math.min(Math.max(r, 1 - e), 1 + e) * a)
      const flat = a > 0 ? ratio > 1 + e : ratio < 1 - e, [low, high] = a > 0 ? [1 + e, 1.8] : [.3, 1 - e]
      const x = r => (20 + 350 * k + 200 * (r - .3)).toFixed(1), y = loss => (110 - 40 * loss).toFixed(1)
      rows.push([a > 0 ? "+1" : "-1", number(loss_at(ratio)), number(flat ? 0 : -ratio * a)])
      return `<rect x="${x(low)}" y="30" width="${(200 * (high - low)).toFixed(1)}" height="160" fill="currentColor" fill-opacity=".1"/>`
        + `<path d="M${x(.3)} ${y(-.3 * a)}L${x(1.8)} ${y(-1.8 * a)}" stroke="currentColor" stroke-dasharray="4 3"/>`
        + `<path d="M${x(.3)} 110H${x(1.8)}" stroke="currentColor" stroke-opacity=".3"/><polyline points="${[.3, 1 - e, 1 + e, 1.8].map(r => `${x(r)},${y(loss_at(r))}`).join(" ")
        }" fill="none" stroke="${BLUE}" stroke-width="3"/><circle cx="${x(ratio)}" cy="${y(loss_at(ratio))}" r="5" fill="${ORANGE}" stroke="currentColor"/>`
        + words_at(+x(.3), 16, `A = ${rows[k][0]}: loss ${rows[k][1]}, gradient ${rows[k][2]}`, 'font-weight="bold"')
        + words_at(+x(.3), 206, "ratio 0.3") + words_at(+x(1.8), 206, "1.8", 'text-anchor="end"') }).join("")
    const said = `ratio ${ratio.toFixed(2)}, clip ${e.toFixed(2)}: ` + rows.map(([a, loss, slope]) => `A = ${a}: loss ${loss}, gradient ${slope}`).join("; ")
    return [said, svg(said, 232, drawn + words_at(20, 224, "dashed: -ratio × A; grey: no gradient")) + table(["A", "loss", "gradient"], rows)]
  }
  function group(_, { answers: k, right, "tokens if right": n, "tokens if wrong": m }) {
    right = Math.min(right, k)
    const mean = right / k, std = Math.sqrt(right * (1 - mean) / (k - 1)) + 1e-4, all = n * right + m * (k - right)
    const pair = (a, b) => [right ? a : 0, right < k ? b : 0], both = (x, y) => x.map((v, i) => 8 * v * y[i])
    const A = { RLOO: pair(1 - (right - 1) / (k - 1), -right / (k - 1)), "Dr. GRPO": pair(1 - mean, -mean), GRPO: pair((1 - mean) / std, -mean / std) }
    const w = { dapo: pair(k / all, k / all), grpo: pair(1 / n, 1 / m), dr_grpo: pair(1 / 32, 1 / 32) }
    const named = (rows, word) => Object.entries(rows).map(([name, v]) => [`${name}, ${word}`, v])
    const left = [...named(A, "advantage"), ...named({ GRPO: both(A.GRPO, w.grpo), DAPO: both(A.GRPO, w.dapo), "Dr. GRPO": both(A["Dr. GRPO"], w.dr_grpo) }, "push on a token")]
    const weights = named(w, "a token").map(([name, v]) => [name, v.map(x => 8 * x)]).concat(named(w, "the answer").map(([name, [a, b]]) => [name, [a * n, b * m]]))
    const said = `${right} of ${k} right: ` + left.slice(0, 3).map(([name, v]) => `${name} ${number(v[0])} and ${number(v[1])}`).join(", ")
    return [said, svg(said, 174, bars(left, 2, "a right answer, and below it a wrong one") + bars(weights, 380, "weight in the loss"), 720)
      + table(["", "right", "wrong"], [...left, ...weights].map(([name, v]) => [name, ...v.map(number)]))]
  }
  function displaced(_, { never, steps }) {
    const vectors = [[1, 0], [.9, never], [-.2, 1]], first = [2, -.5], along = [.1, -never]      // along: No less Never
    const probs = h => log_softmax(vectors.map(([a, b]) => a * h[0] + b * h[1])).map(Math.exp)
    let h = first
    for (let k = 0; k < steps; k++) {
      const pull = sigma(-(along[0] * (h[0] - first[0]) + along[1] * (h[1] - first[1])))         // -d loss by the margin, beta 1
      h = h.map((x, i) => x + pull * along[i]) }
    const before = probs(first), after = probs(h), rows = ["No", "Never", "Yes"].map((word, i) => [word, number(before[i]), number(after[i])])
    const x = v => 450 + 34 * v[0], y = v => 120 - 34 * v[1], scale = Math.max(1, Math.abs(h[0]) / 6, Math.abs(h[1]) / 3)
    const drawn = rows.map(([word, a, b], j) => words_at(50, 50 * j + 42, word, 'text-anchor="end"')
        + `<rect x="58" y="${50 * j + 24}" width="${(200 * before[j]).toFixed(1)}" height="28" fill="currentColor" fill-opacity=".15" stroke="currentColor" stroke-opacity=".5"/>`
        + `<rect x="58" y="${50 * j + 31}" width="${(200 * after[j]).toFixed(1)}" height="14" fill="${ORANGE}"/>`
        + words_at(64 + 200 * Math.max(before[j], after[j]), 50 * j + 42, `${a} → ${b}`)).join("")
      + '<path d="M380 120H670M450 10V230" stroke="currentColor" stroke-opacity=".3"/>'
      + vectors.map((v, i) => `<path d="M450 120L${x(v).toFixed(1)} ${y(v).toFixed(1)}" stroke="${BLUE}" stroke-width="2"/>` + words_at(x(v) + 4, y(v) - 4, rows[i][0])).join("")
      + [[first, "none"], [h.map(c => c / scale), ORANGE]].map(([v, color]) => `<circle cx="${x(v).toFixed(1)}" cy="${y(v).toFixed(1)}" r="5" fill="${color}" stroke="currentColor"/>`).join("")
      + words_at(380, 244, `h: (${h[0].toFixed(2)}, ${h[1].toFixed(2)})`.replace("-0.00", "0.00") + "; ring: at the start")
    const said = rows.map(([word, a, b]) => `${word} ${a} to ${b}`).join("; ")
    return [said, svg(said, 252, drawn) + table(["word", "start", "end"], rows)]
  }
  function lag({ table: rows_of }, { lag, answers: n }) {
    const rows = rows_of[lag], [best, b, v] = rows.reduce((a, c) => +(c[1] + c[2] / n).toFixed(9) < +(a[1] + a[2] / n).toFixed(9) ? c : a)
    const said = `lag ${lag}, ${n} answers: the least squared error is ${number(b + v / n)}, ${best}`
    return [said, svg(said, 198, bars(rows.map(([how, b, v]) => [how, [b, v / n]]), 2, "bias², and below it variance / n")
      + bars(rows.map(([how, , , angle]) => [how, [angle]]), 380, "degrees off the exact gradient"), 720)
      + table(["weights", "bias²", "variance / n", "degrees"], rows.map(([how, b, v, angle]) => [how, number(b), number(v / n), number(angle)]))]
  }

  // ---- the controls
  const KINDS = { kl: [kl, "KL estimators"], next: [next, "next token"], losses: [losses, "losses"], tree: [tree, "tree of responses"], clip: [clip, "clipped loss"],
    group: [group, "group"], displaced: [displaced, "displacement"], lag: [lag, "lag"] }
  const seen = {}
  document.querySelectorAll("[data-knobs]").forEach((box, n) => {
    const facts = JSON.parse(box.dataset.knobs), [draw, ariaLabel] = KINDS[facts.kind], power = facts.knobs.map(k => k[5])
    const form = Object.assign(document.createElement("form"), { className: `knobs ${facts.kind}`, innerHTML: facts.knobs.map(([name, value, low, high, step], i) =>
      `<label for="knob-${n}-${i}">${escaped(name)}</label><input type="range" id="knob-${n}-${i}" name="${escaped(name)}" value="${
        value}" min="${low}" max="${high}" step="${step}"><span aria-hidden="true">${facts.knobs[i][5] ? general(facts.knobs[i][5] ** value, 3) : value}</span>`).join("") + '<button type="reset">Reset</button><p role="status"></p>' })
    const picture = document.createElement("div")
    picture.append(...box.childNodes)
    Object.assign(picture, { className: "picture", tabIndex: 0, role: "region", ariaLabel })
    box.append(form, picture)
    const fields = [...form.querySelectorAll("input")], own = `${facts.kind}${(seen[facts.kind] = (seen[facts.kind] ?? -1) + 1) || ""}`
    const address = () => new URLSearchParams(location.hash.slice(1)), kept = address().get(own)?.split("_") || []      // #losses=1.5_1_8_0.5_0.3
    const turn = e => {
      if (e) {
        const all = [...address()].filter(([k, v]) => v && k != own)                              // not the anchor of a section
        history.replaceState(null, "", "#" + new URLSearchParams([[own, fields.map(x => x.value).join("_")], ...all])) }
      const at = {}, open = picture.querySelector("details")?.open
      fields.forEach((x, i) => {
        at[x.name] = power[i] ? power[i] ** x.valueAsNumber : x.valueAsNumber
        x.nextElementSibling.textContent = x.ariaValueText = general(at[x.name], power[i] == 2 ? 6 : 3) })
      const [said, page] = draw(facts, at)
      picture.innerHTML = page
      picture.querySelector("details").open = open
      form.querySelector("[role=status]").textContent = said
    }
    form.addEventListener("input", turn)
    form.addEventListener("reset", e => setTimeout(() => turn(e)))
    if (kept.length == fields.length) { fields.forEach((x, i) => { x.value = kept[i] }); turn() }
    form.addEventListener("submit", e => e.preventDefault())
  })
})()
