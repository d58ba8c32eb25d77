/* Ranked search over the sections of the site. Everything is in sections.js: no server, no request,
   so it also works on files that were opened from a disk. BM25F: a word counts by how rare it is, by where
   it stands (a name, a heading, a text, code), and less and less the more often it is repeated. */
const rlhfSearch = (() => {
  const GREEK = { "β": "beta", "γ": "gamma", "λ": "lambda", "π": "pi", "ε": "epsilon", "τ": "tau", "θ": "theta", "σ": "sigma" }
  const STOP = new Set(("a an and are as at be by can do does for from get go going has have how i in is it its my not of on or " +
    "should so that the their this to was what when where which who why will with you your").split(" "))
  const SAME = { fall: ["down", "drop", "decreas", "declin"], down: ["fall", "drop", "decreas"], grow: ["up", "ris", "increas"],
    hack: ["exploit", "flatter"], pad: ["padd"], regularis: ["penalti"], regulariz: ["penalti"], install: ["setup"] }
  const WEIGHT = [8, 5, 8, 1, .4]               // short name and title, heading, what is asked, prose, code
  const stem = w => w.length < 4 ? w :
    w.replace(/(ies|y)$/, "i").replace(/(?<=.{3})(ing|ed)$/, "").replace(/(?<=.{3})(es|e|s)$/, "")
  const words = text => {
    const found = []
    for (const [w] of text.normalize("NFKC").replace(/[βγλπετθσ]/g, c => " " + GREEK[c] + " ").matchAll(/[\p{L}\p{N}_]+/gu)) {
      found.push(stem(w.toLowerCase()))
      const parts = w.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase().split("_").filter(Boolean)
      if (parts.length > 1) found.push(...parts.map(stem))
    }
    return found
  }
  const count = fields => {
    const n = new Map()
    fields.forEach((list, i) => { for (const w of list) n.set(w, (n.get(w) || 0) + WEIGHT[i]) })
    return n
  }
  let docs, index
  function read() {
    const { pages, sections } = window.rlhfSections
    const own = pages.map(([url, title, short, asked]) => [words(short + " " + title), [], words(asked), [], []])
    docs = []
    const whole = pages.map((p, i) => ({ page: i, section: null, fields: own[i].map(f => [...f]) }))
    sections.forEach(([page, anchor, heading, text, code], i) => {
      const prose = words(text), names = words(code), head = words(heading)
      const first = !anchor
      docs.push({ page, section: i, fields: [first ? own[page][0] : [], first ? [] : head, first ? own[page][2] : [], prose, names] })
      if (!first) whole[page].fields[1].push(...head)
      whole[page].fields[3].push(...prose); whole[page].fields[4].push(...names)
    })
    docs.push(...whole)
    index = new Map()
    for (const [kind, list] of [[0, docs.filter(d => d.section !== null)], [1, whole]]) {
      const mean = list.reduce((s, d) => s + d.fields[3].length + .3 * d.fields[4].length, 0) / list.length
      for (const d of list) {
        d.kind = kind
        d.long = .35 + .65 * (d.fields[3].length + .3 * d.fields[4].length) / mean
        d.n = count(d.fields)
        for (const [w, n] of d.n) { if (!index.has(w)) index.set(w, [[], []]); index.get(w)[kind].push([d, n]) }
      }
    }
  }
  const near = (text, asked) => {                // the words of the question side by side
    for (let i = 0; i + asked.length <= text.length; i++) if (asked.every((w, j) => text[i + j] === w)) return true
    return false
  }
  function search(question, limit = 20) {
    if (!index) read()
    const { pages, sections } = window.rlhfSections
    const all = words(question), useful = all.filter((w, i) => !STOP.has(w) && all.indexOf(w) === i)
    const asked = useful.length ? useful : all
    if (!asked.length) return []
    const scores = new Map()
    asked.forEach((w, k) => {
      const terms = new Map([[w, 1]])
      for (const same of SAME[w] || []) terms.set(stem(same), .5)
      if (w.length > 2) for (const other of index.keys())        // the beginning of a longer word
        if (other.startsWith(w) && !terms.has(other)) terms.set(other, .5 * w.length / other.length)
      for (const kind of [0, 1]) {
        const total = kind ? pages.length : sections.length
        for (const [term, share] of terms) {
          const found = index.get(term)?.[kind] || []
          const idf = Math.log(1 + (total - found.length + .5) / (found.length + .5))
          for (const [d, n] of found) {
            const s = scores.get(d) || Array(asked.length).fill(0)
            s[k] = Math.max(s[k], share * idf * n / (n + 2 * d.long))
            scores.set(d, s)
          }
        }
      }
    })
    const ofPage = new Map()
    for (const [d, s] of scores) {
      let score = s.reduce((a, b) => a + b, 0) * (s.filter(Boolean).length / asked.length) ** 1.5
      if (asked.length > 1) {
        if (near(d.fields[0], asked) || near(d.fields[1], asked) || near(d.fields[2], asked)) score *= 1.4
        else if (near(d.fields[3], asked)) score *= 1.15
      }
      const p = ofPage.get(d.page) || { whole: 0, hits: [] }
      if (d.section === null) p.whole = score; else p.hits.push([score, d.section])
      ofPage.set(d.page, p)
    }
    return [...ofPage].map(([i, p]) => {
      const [url, title, short] = pages[i]
      const hits = p.hits.sort((a, b) => b[0] - a[0]), course = /^\d\d /.test(short)
      const kept = hits.slice(0, 3).filter(h => h[0] > .4 * (hits[0]?.[0] || 0))
      const score = (p.whole + (hits[0]?.[0] || 0)) * (course || url === "index.html" ? 1.25 : url.startsWith("api/") ? .6 : 1)
      return { url, title, score, hits: kept.map(([, s]) => ({ anchor: sections[s][1], heading: sections[s][2], text: sections[s][3] })) }
    }).sort((a, b) => b.score - a.score).slice(0, limit)
  }
  function excerpt(text, asked) {                // some words around the first of them that are asked for
    const parts = text.split(/\s+/), at = parts.findIndex(p => words(p).some(w => asked.has(w)))
    const from = Math.max(0, at - 12)
    return parts.slice(from, from + 34).map(p => [p, words(p).some(w => asked.has(w))])
  }
  function show(question) {
    const list = document.getElementById("search-results"), said = document.getElementById("search-said")
    list.replaceChildren()
    if (!question.trim()) { said.textContent = ""; return }
    const found = search(question), asked = new Set(words(question).filter(w => !STOP.has(w)))
    said.textContent = found.length ? `${found.length} ${found.length == 1 ? "page" : "pages"}, the best first` : "Nothing found: try another word for it."
    const link = (url, text) => Object.assign(document.createElement("a"), { href: url, textContent: text })
    for (const page of found) {
      const item = document.createElement("li")
      item.append(link(page.url, page.title))
      for (const hit of page.hits) {
        const p = document.createElement("p")
        if (hit.anchor) p.append(link(page.url + "#" + hit.anchor, hit.heading), " ")
        for (const [word, marked] of excerpt(hit.text, asked))
          p.append(marked ? Object.assign(document.createElement("mark"), { textContent: word }) : word, " ")
        item.append(p)
      }
      list.append(item)
    }
  }
  if (typeof document !== "undefined") {
    const field = document.getElementById("search-words")
    field.value = new URLSearchParams(location.search).get("q") || ""
    field.addEventListener("input", () => show(field.value))
    field.form.addEventListener("submit", e => { e.preventDefault(); show(field.value)
      history.replaceState(null, "", "?q=" + encodeURIComponent(field.value)) })
    show(field.value)
    if (!field.value) field.focus()
  }
  return search
})()
