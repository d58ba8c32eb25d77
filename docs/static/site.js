/* A button on each cell and each block of code that copies it; without a script there is none. */
document.querySelectorAll("article div.cell_input div.highlight, article :not(.cell_output) > div[class*=highlight-] > div.highlight").forEach(box => {
  const pre = box.querySelector("pre")
  if (!pre || box.closest(".cell_output") || box.querySelector(".copy")) return
  const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" })
  button.setAttribute("aria-label", "Copy this code")
  const say = word => {
    button.textContent = word
    button.setAttribute("aria-label", word == "Copy" ? "Copy this code" : word)
  }
  const by_hand = text => {                       // a page that is not from a server or https
    const area = Object.assign(document.createElement("textarea"), { value: text })
    document.body.append(area)
    area.select()
    try { return document.execCommand("copy") } finally { area.remove(); button.focus() }
  }
  button.addEventListener("click", async () => {
    const text = pre.textContent.replace(/\n$/, "")
    let copied
    try { await navigator.clipboard.writeText(text); copied = true } catch { copied = by_hand(text) }
    say(copied ? "Copied" : "Not copied")
    button.addEventListener("blur", () => say("Copy"), { once: true })
    button.addEventListener("pointerleave", () => say("Copy"), { once: true })
  })
  box.prepend(button)
})
/* A formula, a table or an output that is wider than its place can be reached by Tab, and then scrolled by arrow keys. */
const wide = () => document.querySelectorAll("article div.math, article .table-wrapper, article .text_html, article .cell_output.container").forEach(box => {
  if (box.scrollWidth > box.clientWidth) {
    box.tabIndex = 0
    box.role = "group"
    box.ariaLabel = box.matches(".math") ? "formula" : box.matches(".table-wrapper") ? "table" : "output"
  } else if (box.tabIndex == 0) ["tabindex", "role", "aria-label"].forEach(name => box.removeAttribute(name))
})
wide()
addEventListener("load", wide)
addEventListener("resize", wide)
