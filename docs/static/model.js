/* The bundled models in the page: float16 safetensors, a GPT-NeoX of two layers with a cache, the tokenizer, a sampler.
   models.js, made when the site is built, brings the files; it is asked for when a block with data-model is near.
   The numbers are those of transformers, to 1e-4: tests/test_site_browser.py compares logits and scores. */
(() => {
  const half = u => {                                       // one float16
    const sign = u & 0x8000 ? -1 : 1, e = (u >> 10) & 31, m = u & 1023
    return sign * (e ? 2 ** (e - 15) * (1 + m / 1024) : m * 2 ** -24) }

  function weights(base64) {                                // safetensors -> name -> Float32Array with a shape
    const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt()), view = new DataView(bytes.buffer)
    const n = Number(view.getBigUint64(0, true)), head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + n)))
    const found = {}
    delete head.__metadata__
    for (const [name, { dtype, shape, data_offsets: [a, b] }] of Object.entries(head)) {
      if (dtype != "F16") throw Error(`${name} is ${dtype}, float16 is read`)
      found[name] = Float32Array.from({ length: (b - a) / 2 }, (_, i) => half(view.getUint16(8 + n + a + 2 * i, true)))
      found[name].shape = shape }
    return found }

  const linear = (x, W, b) => {
    const [rows, n] = W.shape, out = new Float32Array(rows)
    for (let i = 0, at = 0; i < rows; i++) {
      let s = b ? b[i] : 0
      for (let j = 0; j < n; j++) s += W[at++] * x[j]
      out[i] = s }
    return out }
  const norm = (x, gain, bias) => {
    const n = x.length
    let mean = 0, v = 0
    for (const a of x) mean += a / n
    for (const a of x) v += (a - mean) ** 2 / n
    return x.map((a, i) => (a - mean) / Math.sqrt(v + 1e-5) * gain[i] + bias[i]) }
  const erf = x => {                                        // Abramowitz and Stegun 7.1.26, to 1.5e-7
    const t = 1 / (1 + .3275911 * Math.abs(x))
    const y = 1 - ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - .284496736) * t + .254829592) * t * Math.exp(-x * x)
    return x < 0 ? -y : y }
  const gelu = x => .5 * x * (1 + erf(x / Math.SQRT2))
  const gelu_slope = x => .5 * (1 + erf(x / Math.SQRT2)) + x * Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI)

  class Model {                                             // reads token after token; what was read before is kept
    constructor(config, w) {
      this.config = config
      this.w = w
      this.head = this.w["embed_out.weight"] || this.w["score.weight"]
      this.ids = [], this.out = [], this.keys = [], this.values = []        // by position
    }
    read(ids) {                                             // -> outputs of the head after each token
      let same = 0
      while (same < ids.length && ids[same] === this.ids[same]) same++
      for (const x of [this.ids, this.out, this.keys, this.values]) x.length = same
      for (const id of ids.slice(same)) this.step(id)
      return this.out }
    step(id) {
      const { hidden_size: d, num_attention_heads: heads, num_hidden_layers: layers } = this.config, w = this.w
      const size = d / heads, middle = size / 2, at = this.ids.length
      let x = w["gpt_neox.embed_in.weight"].slice(id * d, id * d + d)
      const keys = [], values = []
      this.keys.push(keys), this.values.push(values)
      for (let l = 0; l < layers; l++) {
        const part = name => [w[`gpt_neox.layers.${l}.${name}.weight`], w[`gpt_neox.layers.${l}.${name}.bias`]]
        const qkv = linear(norm(x, ...part("input_layernorm")), ...part("attention.query_key_value"))
        const q = new Float32Array(d), k = new Float32Array(d), v = new Float32Array(d), mixed = new Float32Array(d)
        for (let h = 0; h < heads; h++) for (let i = 0; i < size; i++) {    // rotary positions
          const angle = at / 10000 ** (2 * (i % middle) / size), c = Math.cos(angle), s = Math.sin(angle)
          const o = h * 3 * size, to = h * size + i, other = i < middle ? i + middle : i - middle, sign = i < middle ? -1 : 1
          q[to] = qkv[o + i] * c + sign * qkv[o + other] * s
          k[to] = qkv[o + size + i] * c + sign * qkv[o + size + other] * s
          v[to] = qkv[o + 2 * size + i] }
        keys.push(k), values.push(v)
        for (let h = 0; h < heads; h++) {
          const score = this.keys.map(each => {
            let s = 0
            for (let i = h * size; i < h * size + size; i++) s += q[i] * each[l][i]
            return s / Math.sqrt(size) })
          const p = softmax(score)
          for (let t = 0; t <= at; t++) for (let i = h * size; i < h * size + size; i++) mixed[i] += p[t] * this.values[t][l][i] }
        const attended = linear(mixed, ...part("attention.dense"))
        const up = linear(norm(x, ...part("post_attention_layernorm")), ...part("mlp.dense_h_to_4h")).map(gelu)
        const down = linear(up, ...part("mlp.dense_4h_to_h"))
        x = x.map((a, i) => a + attended[i] + down[i]) }                    // attention and perceptron side by side
      x = norm(x, w["gpt_neox.final_layer_norm.weight"], w["gpt_neox.final_layer_norm.bias"])
      this.ids.push(id)
      this.out.push(linear(x, this.head)) }
  }

  const softmax = z => {
    const top = z.reduce((a, b) => Math.max(a, b), -Infinity), e = Array.from(z, x => Math.exp(x - top)), sum = e.reduce((a, b) => a + b, 0)
    return e.map(x => x / sum) }

  class Tokenizer {                                         // words with the space before them
    constructor(words) {
      this.words = words
      this.ids = new Map(words.map((word, i) => [word, i])) }
    encode(text) { return (text.match(/ ?(?:[A-Za-z]+|[0-9]|[^A-Za-z0-9\s])|\s/g) || []).map(x => this.ids.get(x) ?? 3) }
    prompt(question) { return [4, ...this.encode(question), 5] }
    decode(ids) { return ids.map(i => this.words[i]).join("") } }
  const PAD = 0, EOS = 2

  // log-probs as the package has them: the pad is ruled out
  const logprobs = logits => {
    const z = Array.from(logits)
    z[PAD] = -Infinity
    return softmax(z).map(Math.log) }
  function sample(model, prompt, temperature, random = Math.random, most = 40) {  // -> ids of an answer, its end too
    const ids = []
    while (ids.length < most && ids.at(-1) !== EOS) {
      const z = Array.from(model.read([...prompt, ...ids]).at(-1), (x, i) => i == PAD ? -Infinity : x / temperature), p = softmax(z)
      let u = random(), i = 0
      while ((u -= p[i]) > 0 && i < p.length - 1) i++
      ids.push(i) }
    return ids }

  // ---- files
  const here = document.currentScript?.src
  let loading
  const load = () => loading ||= new Promise((done, failed) => {
    const script = document.createElement("script")
    script.src = new URL("models.js", here).href
    script.onload = () => {
      const { words, models } = window.rlhfModels
      try { done({ tokenizer: new Tokenizer(words), ...Object.fromEntries(Object.entries(models).map(([k, x]) => [k, new Model(x.config, weights(x.weights))])) }) } catch (e) { failed(e) } }
    script.onerror = () => failed(Error("the models did not load"))
    document.head.append(script) })

  const near = (box, start) => {                            // when a reader comes to it
    if (!("IntersectionObserver" in window)) return start()
    new IntersectionObserver((seen, o) => { if (seen.some(x => x.isIntersecting)) { o.disconnect(); start() } }, { rootMargin: "200px" }).observe(box) }

  // ---- the block: an answer, its reward after each token, what the sampler would say next, the KL to the base model
  const escaped = text => String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt()};`)
  const signed = x => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2)
  const tint = (x, most) => `${x > 0 ? "#ee9a57" : "#5b8fbe"}${Math.round(108 * Math.min(1, Math.abs(x) / most)).toString(16).padStart(2, "0")}`

  function look({ tokenizer, sft, base, reward }, question, answer) {
    const prompt = tokenizer.prompt(question), said = tokenizer.encode(answer), ids = [...said, EOS], all = [...prompt, ...ids], n = prompt.length
    const scores = reward.read(all).map(x => x[0]), ours = sft.read(all), theirs = base.read(all)
    return { unknown: all.filter(i => i == 3).length, score: scores.at(-1), tokens: ids.map((id, i) => {
      const a = logprobs(ours[n + i - 1])[id], b = logprobs(theirs[n + i - 1])[id]
      return { word: id == EOS ? "end" : id == 3 ? "?" : tokenizer.words[id], score: scores[n + i], step: scores[n + i] - scores[n + i - 1],
               logp: a, ref: b, kl: a - b } }),
      next: logprobs(ours[n + said.length - 1]).map((x, id) => [Math.exp(x), id]).sort((a, b) => b[0] - a[0]).slice(0, 6) } }

  function drawn({ tokens }) {
    const most = Math.max(...tokens.map(t => Math.abs(t.step)), 1e-9)
    const boxes = tokens.map(t => `<span class="token" style="background:${tint(t.step, most)}">${escaped(t.word)}<small>${signed(t.step)}</small></span>`).join("")
    const row = t => `<tr><th scope="row">${escaped(t.word)}</th>${[t.score, t.step, t.logp, t.ref, t.kl].map(x => `<td>${signed(x)}</td>`).join("")}</tr>`
    const total = tokens.reduce((s, t) => s + t.kl, 0)
    return [`<div class="tokens">${boxes}</div>`, `<details><summary>All numbers, and the KL to the base model: ${signed(total)} nats on this answer</summary>
      <div class="wide" tabindex="0" role="region" aria-label="numbers of each token"><table><thead><tr>${["token", "reward after it", "its step", "log π (SFT)", "log π (base)", "difference"]
        .map(x => `<th scope="col">${x}</th>`).join("")}</tr></thead><tbody>${tokens.map(row).join("")}</tbody></table></div></details>`] }

  document.querySelectorAll("[data-model]").forEach((box, n) => {
    const { questions, answer, judged } = JSON.parse(box.dataset.model)
    box.innerHTML = `<form class="model"><label for="model-q-${n}">Question</label><input id="model-q-${n}" list="model-l-${n}" type="text" autocomplete="off" spellcheck="false" value="${
      escaped(questions[0])}"><datalist id="model-l-${n}">${questions.map(q => `<option value="${escaped(q)}">`).join("")}</datalist><label for="model-a-${n}">Your answer</label><input id="model-a-${n}" type="text" autocomplete="off" spellcheck="false" value="${
      escaped(answer)}"><p role="status"></p><div class="picture"></div><p class="next"></p><div class="more"></div><p><button type="button">Let the SFT model answer</button> <button type="button">Ask the judge</button> <span aria-live="polite"></span></p></form>`
    const form = box.firstChild, [ask, field] = form.querySelectorAll("input"), [button, judge] = form.querySelectorAll("button"), said = judge.nextElementSibling
    const status = form.querySelector("[role=status]")
    form.addEventListener("submit", e => e.preventDefault())
    const show = kit => {
      const found = look(kit, ask.value, field.value), [tokens, more] = drawn(found), open = form.querySelector("details")?.open
      status.textContent = `reward ${signed(found.score)}${found.unknown ? `; ${found.unknown} words that the model does not know` : ""}`
      form.querySelector(".picture").innerHTML = tokens
      form.querySelector(".more").innerHTML = more
      form.querySelector("details").open = open
      form.querySelector(".next").innerHTML = "The SFT model would go on: " + found.next.map(([p, id]) => id == EOS ? `<span>end ${(100 * p).toFixed(0)}%</span>`
        : `<button type="button" data-id="${id}">${escaped(kit.tokenizer.words[id].trim())} ${(100 * p).toFixed(0)}%</button>`).join(" ")
      box.dataset.ready = found.score }
    const start = () => load().then(kit => {
      const draw = () => show(kit)
      ask.addEventListener("input", draw)
      field.addEventListener("input", draw)
      form.querySelector(".next").addEventListener("click", e => {
        if (!e.target.dataset.id) return
        field.value += kit.tokenizer.words[e.target.dataset.id]
        draw()
        form.querySelector(".next button")?.focus() })
      button.addEventListener("click", () => {
        const prompt = kit.tokenizer.prompt(ask.value), answers = Array.from({ length: 8 }, () => sample(kit.sft, prompt, 1))
        const scores = answers.map(ids => kit.reward.read([...prompt, ...ids]).at(-1)[0]), best = scores.indexOf(Math.max(...scores))
        field.value = kit.tokenizer.decode(answers[best].filter(i => i != EOS)).trim()
        said.textContent = `best of 8; their rewards: ${scores.sort((a, b) => b - a).map(signed).join(", ")}`
        draw() })
      judge.addEventListener("click", () => {                // greedy, as in chapter 13
        const asked = kit.tokenizer.prompt(judged.replace("{question}", () => ask.value).replace("{answer}", () => field.value))
        said.textContent = `The judge says: ${kit.tokenizer.decode(sample(kit.judge, asked, 1e-6).filter(i => i != EOS)).trim()}` })
      draw()
    }).catch(e => { status.textContent = `${e.message}: the page needs all files of the site` })
    near(box, start)
  })
  window.rlhfPage = { load, look, sample, logprobs, Model, softmax, gelu, gelu_slope, escaped, signed, tint, near, EOS }   // for train.js, the tests and the curious
})()
