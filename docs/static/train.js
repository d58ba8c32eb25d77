/* DPO in the page: ten labels of the reader's train the bundled policy, all of its weights, with a backward pass written by hand.
   It is what TrainConfig, make_pair_loss and dpo_loss do: tests/test_site_models.py compares loss, gradient and weights with torch. */
(() => {
  const { load, Model, sample, logprobs, softmax, gelu, gelu_slope, escaped, signed, tint, near, EOS } = window.rlhfPage

  // ---- layers of T rows: forward, then the gradient by the input; gradients of weights are added to what stands there
  function linear(x, W, b) {                                // (T n), (m n) -> (T m)
    const [m, n] = W.shape, T = x.length / n, y = new Float32Array(T * m)
    for (let t = 0; t < T; t++) for (let i = 0; i < m; i++) {
      let s = b ? b[i] : 0
      for (let j = 0, at = i * n, from = t * n; j < n; j++) s += W[at + j] * x[from + j]
      y[t * m + i] = s }
    return y }
  function linear_back(dy, x, W, dW, db) {
    const [m, n] = W.shape, T = x.length / n, dx = new Float32Array(T * n)
    for (let t = 0; t < T; t++) for (let i = 0; i < m; i++) {
      const g = dy[t * m + i]
      if (db) db[i] += g
      for (let j = 0, at = i * n, from = t * n; j < n; j++) {
        dx[from + j] += g * W[at + j]
        dW[at + j] += g * x[from + j] } }
    return dx }
  function norm(x, gain, bias) {
    const n = gain.length, z = new Float32Array(x.length), scales = []
    for (let at = 0; at < x.length; at += n) {
      let mean = 0, v = 0
      for (let j = 0; j < n; j++) mean += x[at + j] / n
      for (let j = 0; j < n; j++) v += (x[at + j] - mean) ** 2 / n
      const s = 1 / Math.sqrt(v + 1e-5)
      for (let j = 0; j < n; j++) z[at + j] = (x[at + j] - mean) * s
      scales.push(s) }
    return { z, scales, y: z.map((a, i) => a * gain[i % n] + bias[i % n]) } }
  function norm_back(dy, { z, scales }, gain, dgain, dbias) {
    const n = gain.length, dx = new Float32Array(dy.length)
    scales.forEach((s, t) => {
      let mean = 0, along = 0
      for (let j = 0, at = t * n; j < n; j++, at++) {
        dgain[j] += dy[at] * z[at]
        dbias[j] += dy[at]
        mean += dy[at] * gain[j] / n
        along += dy[at] * gain[j] * z[at] / n }
      for (let j = 0, at = t * n; j < n; j++, at++) dx[at] = s * (dy[at] * gain[j] - mean - z[at] * along) })
    return dx }
  function turned(qkv, heads, size, sign) {                 // rotary positions; backward they turn the other way
    const middle = size / 2, width = 3 * heads * size
    for (let t = 0; t * width < qkv.length; t++) for (let h = 0; h < heads; h++) for (let part = 0; part < 2; part++) for (let i = 0; i < middle; i++) {
      const angle = t / 10000 ** (2 * i / size), c = Math.cos(angle), s = sign * Math.sin(angle)
      const at = t * width + (3 * h + part) * size + i, a = qkv[at], b = qkv[at + middle]
      qkv[at] = a * c - b * s
      qkv[at + middle] = b * c + a * s }
    return qkv }
  function attend(qkv, heads, size) {
    const width = 3 * heads * size, T = qkv.length / width, mixed = new Float32Array(T * heads * size), weights = []
    for (let h = 0; h < heads; h++) for (let t = 0; t < T; t++) {
      const q = t * width + 3 * h * size, score = []
      for (let u = 0; u <= t; u++) {
        const k = u * width + (3 * h + 1) * size
        let s = 0
        for (let i = 0; i < size; i++) s += qkv[q + i] * qkv[k + i]
        score.push(s / Math.sqrt(size)) }
      const p = softmax(score)
      weights.push(p)
      for (let u = 0; u <= t; u++) for (let i = 0; i < size; i++)
        mixed[(t * heads + h) * size + i] += p[u] * qkv[u * width + (3 * h + 2) * size + i] }
    return { mixed, weights } }
  function attend_back(dmixed, qkv, weights, heads, size) {
    const width = 3 * heads * size, T = qkv.length / width, d = new Float32Array(qkv.length)
    for (let h = 0; h < heads; h++) for (let t = 0; t < T; t++) {
      const p = weights[h * T + t], q = t * width + 3 * h * size, from = (t * heads + h) * size, dp = []
      for (let u = 0; u <= t; u++) {
        const v = u * width + (3 * h + 2) * size
        let s = 0
        for (let i = 0; i < size; i++) {
          s += dmixed[from + i] * qkv[v + i]
          d[v + i] += p[u] * dmixed[from + i] }
        dp.push(s) }
      const mean = dp.reduce((s, x, u) => s + p[u] * x, 0)
      for (let u = 0; u <= t; u++) {
        const k = u * width + (3 * h + 1) * size, g = p[u] * (dp[u] - mean) / Math.sqrt(size)
        for (let i = 0; i < size; i++) {
          d[q + i] += g * qkv[k + i]
          d[k + i] += g * qkv[q + i] } } }
    return d }

  // the log-prob of an answer behind a prompt, and `back(scale, gradients)`, which adds scale times its gradient
  function answer_logprob({ config, w, head }, prompt, answer) {
    const { hidden_size: d, num_attention_heads: heads, num_hidden_layers: layers } = config, size = d / heads
    const ids = [...prompt, ...answer].slice(0, -1), first = prompt.length - 1, kept = []
    const of = (where, name) => [where[`gpt_neox.${name}.weight`], where[`gpt_neox.${name}.bias`]]
    const embedded = w["gpt_neox.embed_in.weight"], out = Object.keys(w).find(k => w[k] === head)
    let x = new Float32Array(ids.length * d)
    ids.forEach((id, t) => x.set(embedded.subarray(id * d, id * d + d), t * d))
    for (let l = 0; l < layers; l++) {
      const part = name => of(w, `layers.${l}.${name}`)
      const before = norm(x, ...part("input_layernorm")), qkv = turned(linear(before.y, ...part("attention.query_key_value")), heads, size, 1)
      const { mixed, weights } = attend(qkv, heads, size), attended = linear(mixed, ...part("attention.dense"))
      const beside = norm(x, ...part("post_attention_layernorm")), up = linear(beside.y, ...part("mlp.dense_h_to_4h")), bent = up.map(gelu)
      const down = linear(bent, ...part("mlp.dense_4h_to_h"))
      x = x.map((a, i) => a + attended[i] + down[i])
      kept.push({ before, qkv, mixed, weights, beside, up, bent }) }
    const last = norm(x.subarray(first * d), ...of(w, "final_layer_norm")), z = linear(last.y, head), V = head.shape[0]
    const rows = answer.map((_, i) => logprobs(z.subarray(i * V, i * V + V)))
    const back = (scale, grads) => {
      const dz = new Float32Array(z.length)
      rows.forEach((row, i) => row.forEach((l, j) => { dz[i * V + j] = scale * ((j == answer[i]) - Math.exp(l)) }))
      let dx = new Float32Array(ids.length * d)
      dx.set(norm_back(linear_back(dz, last.y, head, grads[out]), last, of(w, "final_layer_norm")[0], ...of(grads, "final_layer_norm")), first * d)
      for (let l = layers - 1; l >= 0; l--) {
        const { before, qkv, mixed, weights, beside, up, bent } = kept[l], part = name => `layers.${l}.${name}`
        const through = (dy, input, name) => linear_back(dy, input, of(w, part(name))[0], ...of(grads, part(name)))
        const normed = (dy, n, name) => norm_back(dy, n, of(w, part(name))[0], ...of(grads, part(name)))
        const dup = through(dx, bent, "mlp.dense_4h_to_h").map((g, i) => g * gelu_slope(up[i]))
        const dmlp = normed(through(dup, beside.y, "mlp.dense_h_to_4h"), beside, "post_attention_layernorm")
        const dqkv = turned(attend_back(through(dx, mixed, "attention.dense"), qkv, weights, heads, size), heads, size, -1)
        const dattention = normed(through(dqkv, before.y, "attention.query_key_value"), before, "input_layernorm")
        dx = dx.map((g, i) => g + dmlp[i] + dattention[i]) }
      const dembedded = grads["gpt_neox.embed_in.weight"]
      ids.forEach((id, t) => { for (let j = 0; j < d; j++) dembedded[id * d + j] += dx[t * d + j] }) }
    return { logp: rows.reduce((s, row, i) => s + row[answer[i]], 0), back } }

  // ---- DPO and AdamW; pairs: {prompt, chosen, rejected} of ids, ref: [log-prob of chosen, of rejected]
  const breath = () => new Promise(done => {                // the page draws and listens between two answers
    const channel = new MessageChannel()
    channel.port1.onmessage = done
    channel.port2.postMessage(0) })
  const zeros = w => Object.fromEntries(Object.entries(w).map(([k, x]) => [k, new Float32Array(x.length)]))
  const both = ({ prompt, chosen, rejected }, model) => [chosen, rejected].map(x => answer_logprob(model, prompt, x))

  async function gradient(model, pairs, beta) {             // -> mean loss, its gradient, a row for each pair
    const grads = zeros(model.w), rows = []
    for (const pair of pairs) {
      const sides = both(pair, model), [up, down] = sides.map((x, i) => x.logp - pair.ref[i]), margin = beta * (up - down)
      const push = beta / (1 + Math.exp(margin)) / pairs.length
      await breath()
      sides[0].back(-push, grads)
      await breath()
      sides[1].back(push, grads)
      rows.push({ chosen: up, rejected: down, margin, loss: Math.max(-margin, 0) + Math.log1p(Math.exp(-Math.abs(margin))) })
      await breath() }
    return { loss: rows.reduce((s, r) => s + r.loss, 0) / rows.length, grads, rows } }

  const rate = (step, steps, lr) => {                       // lr_at: warm-up, then down to a twentieth
    const warm = Math.min(20, Math.floor(steps / 2))
    return step < warm ? lr * (step + 1) / warm : lr * (1 - .95 * Math.min(1, (step - warm) / Math.max(1, steps - 1 - warm))) }
  async function train(start, pairs, { beta = .1, steps = 30, lr = 1e-3 }, told = () => {}) {   // told(step, found) -> true to stop
    const model = new Model(start.config, Object.fromEntries(Object.entries(start.w).map(([k, x]) => [k, Object.assign(x.slice(), { shape: x.shape })])))
    const m = zeros(model.w), v = zeros(model.w)
    for (const pair of pairs) {
      pair.ref = both(pair, start).map(x => x.logp)
      await breath() }
    for (let step = 0; ; step++) {
      const found = await gradient(model, pairs, beta)
      if (told(step, found) || step == steps) return { model, rows: found.rows }
      const length = Math.sqrt(Object.values(found.grads).reduce((s, g) => s + g.reduce((a, x) => a + x * x, 0), 0))
      const clip = Math.min(1, 1 / (length + 1e-6)), size = rate(step, steps, lr)
      for (const k in model.w) for (let i = 0, w = model.w[k], g = found.grads[k]; i < w.length; i++) {
        const x = g[i] * clip
        m[k][i] = .9 * m[k][i] + .1 * x
        v[k][i] = .98 * v[k][i] + .02 * x * x
        w[i] -= size * m[k][i] / (1 - .9 ** (step + 1)) / (Math.sqrt(v[k][i] / (1 - .98 ** (step + 1))) + 1e-8) } } }

  // ---- what the training did
  function kl(model, start, prompt, answer) {               // exact at each token of an answer of the model's, summed
    const [now, was] = [model, start].map(m => m.read([...prompt, ...answer]).slice(prompt.length - 1, -1).map(logprobs))
    return now.reduce((s, row, i) => s + row.reduce((a, l, j) => l > -Infinity ? a + Math.exp(l) * (l - was[i][j]) : a, 0), 0) }
  const mean = xs => xs.reduce((s, x) => s + x, 0) / xs.length
  const mean_error = xs => [mean(xs), Math.sqrt(mean(xs.map(x => (x - mean(xs)) ** 2)) / (xs.length - 1))]
  async function judged(kit, model, prompts, random) {      // two answers to each: KL, length, reward of chapter 05
    const found = []
    for (const prompt of [...prompts, ...prompts]) {
      const ids = sample(model, prompt, 1, random)
      found.push({ kl: kl(model, kit.sft, prompt, ids), length: ids.length, reward: kit.reward.read([...prompt, ...ids]).at(-1)[0] })
      await breath() }
    return name => mean_error(found.map(x => x[name])) }

  // ---- the block: ten pairs, a label for each, training, before and after
  const options = (values, first) => values.map(x => `<option${x == first ? " selected" : ""}>${x}</option>`).join("")
  document.querySelectorAll("[data-train]").forEach((box, n) => {
    const { questions, ask } = JSON.parse(box.dataset.train), all = questions.length
    box.innerHTML = `<form class="model train"><p class="asked"></p><div class="answers"><button type="button"></button><button type="button"></button></div>
      <p class="rest"><button type="button">Back</button> <button type="button">The shorter one for the rest</button> <button type="button">Other answers</button></p>
      <label for="train-b-${n}">β</label><select id="train-b-${n}">${options([.03, .1, .3, 1], .1)}</select>
      <label for="train-s-${n}">Steps</label><select id="train-s-${n}">${options([5, 10, 20, 40], 20)}</select>
      <p><button type="button" class="go">Train on these labels</button> <progress value="0" aria-label="training"></progress> <span></span></p>
      <p role="status">The model loads.</p><div class="found"></div></form>`
    const form = box.firstChild, sides = [...form.querySelectorAll(".answers button")], [back, shorter, other] = form.querySelectorAll(".rest button")
    const [asked, go, bar, status, result] = [".asked", ".go", "progress", "[role=status]", ".found"].map(x => form.querySelector(x))
    const [beta, steps] = form.querySelectorAll("select"), free = [...sides, back, shorter, other, beta, steps]
    for (const x of [...free, go]) x.disabled = true
    form.addEventListener("submit", e => e.preventDefault())
    near(box, () => load().then(kit => {
      let seed = 7, at = 0, pairs = [], running = false
      const random = () => (seed = seed * 16807 % 2147483647) / 2147483647
      const said = ids => kit.tokenizer.decode(ids.filter(i => i != EOS)).trim() || "(nothing)"
      const draw = () => {
        const done = pairs.filter(p => "best" in p).length, { question, answers, best } = pairs[at]
        asked.innerHTML = `<b>Pair ${at + 1} of ${all}.</b> ${escaped(question)} Which answer is better?`
        sides.forEach((x, i) => { x.textContent = said(answers[i]); x.ariaPressed = best === i })
        back.disabled = running || !at
        for (const x of free) if (x != back) x.disabled = running
        go.disabled = done < all
        go.textContent = running ? "Stop" : "Train on these labels"
        box.dataset.labels = done
        if (!running) status.textContent = `${done} of ${all} pairs have a label${done < all ? "" : "; the model can learn from them now"}.` }
      const fresh = () => {                                 // two different answers of the model to each question
        pairs = questions.map(question => {
          const prompt = kit.tokenizer.prompt(question), first = sample(kit.sft, prompt, 1, random)
          let second = first
          while (second.join() == first.join()) second = sample(kit.sft, prompt, 1, random)
          return { question, prompt, answers: [first, second] } })
        at = 0
        result.innerHTML = ""
        draw() }
      const label = i => { pairs[at].best = i; at = Math.min(at + 1, all - 1); draw() }
      sides.forEach((x, i) => x.addEventListener("click", e => e.detail > 1 || label(i)))       // a double click is one label
      back.addEventListener("click", () => { at--; draw(); if (!at) sides[0].focus() })
      other.addEventListener("click", fresh)
      shorter.addEventListener("click", () => {
        for (const p of pairs) p.best ??= +(p.answers[1].length < p.answers[0].length)
        at = all - 1
        draw() })
      go.addEventListener("click", async () => {
        if (running) { running = false; return }
        running = true
        draw()
        status.textContent = "The model learns; the page can be used meanwhile."
        Object.assign(bar, { max: +steps.value, value: 0 })
        const data = pairs.map(({ prompt, answers, best }) => ({ prompt, chosen: answers[best], rejected: answers[1 - best] }))
        let taken = 0
        const { model, rows } = await train(kit.sft, data, { beta: +beta.value, steps: +steps.value }, (step, { loss }) => {
          bar.value = taken = step
          bar.nextElementSibling.textContent = `step ${step} of ${steps.value}, loss ${loss.toFixed(3)}`
          return !running })
        const prompts = data.map(p => p.prompt), was = await judged(kit, kit.sft, prompts, random), now = await judged(kit, model, prompts, random)
        running = false
        window.rlhfTrain.last = { model, data }
        show(model, rows, taken, was, now)
        draw()
        status.textContent = `Done: after ${taken} steps the model has ${rows.filter(r => r.margin > 0).length} of ${all} pairs in your order.`
        box.dataset.trained = taken })
      const show = (model, rows, taken, was, now) => {
        const range = ([m, e]) => `${m.toFixed(2).replace("-", "−")} ± ${e.toFixed(2)}`, change = name => `${range(was(name))} before, ${range(now(name))} after`, most = Math.max(...rows.map(r => Math.abs(r.margin)), 1e-9)
        result.innerHTML = `<p>${2 * all} fresh answers to the ten questions, after ${taken} steps: KL to the start ${range(now("kl"))} nats per answer.
          Tokens: ${change("length")}. Reward of chapter 05: ${change("reward")}.</p>
          <div class="wide" tabindex="0" role="region" aria-label="each pair before and after"><table><thead><tr>${["pair", "margin before", "margin after", "your choice, nats", "the other, nats"]
            .map(x => `<th scope="col">${x}</th>`).join("")}</tr></thead><tbody>${rows.map((r, i) => `<tr><th scope="row">${escaped(pairs[i].question)}</th><td>${signed(0)}</td><td style="background:${
            tint(r.margin, most)}">${signed(r.margin)}</td><td>${signed(r.chosen)}</td><td>${signed(r.rejected)}</td></tr>`).join("")}</tbody></table></div>
          <p><label for="train-q-${n}">Ask both models</label> <select id="train-q-${n}">${ask.map(q => `<option>${escaped(q)}</option>`).join("")}</select> <button type="button">Sample again</button></p><div class="both"></div>`
        const field = result.querySelector("select"), both = result.querySelector(".both")
        const answers = () => {
          const prompt = kit.tokenizer.prompt(field.value)
          both.innerHTML = [["before", kit.sft], ["after", model]].map(([name, m]) => `<div><b>${name}</b><ol>${Array.from({ length: 3 }, () => {
            const ids = sample(m, prompt, 1, random)
            return `<li>${escaped(said(ids))} <small>reward ${signed(kit.reward.read([...prompt, ...ids]).at(-1)[0])}</small></li>` }).join("")}</ol></div>`).join("") }
        field.addEventListener("change", answers)
        result.querySelector("button").addEventListener("click", answers)
        answers() }
      fresh()
      box.dataset.ready = 1
    }).catch(e => { status.textContent = `${e.message}: the page needs all files of the site` }))
  })
  window.rlhfTrain = { gradient, train, kl }    // for the tests, and for the curious
})()
