"use strict";
const find = (query, place = document) => [...place.querySelectorAll(query)];
const tools = document.querySelector(".tools");
const field = tools.querySelector("input");
const said = tools.querySelector("output");
const articles = find("article");
const texts = new Map();
let waiting = 0;

tools.hidden = articles.length === 0;
tools.addEventListener("submit", event => event.preventDefault());

function textOf(article) {
  if (!texts.has(article)) texts.set(article, article.textContent.toLowerCase());
  return texts.get(article);
}

function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const article of articles) {
    const fits = words.every(word => textOf(article).includes(word));
    article.hidden = !fits;
    shown += fits;
  }
  for (const day of find(".date")) day.hidden = !day.querySelector("article:not([hidden])");
  said.value = words.length ? `${shown} of ${articles.length}` : "";
  mark(words, shown);
}

function mark(words, shown) {
  if (!window.CSS || !CSS.highlights) return;
  CSS.highlights.delete("found");
  if (!words.length || shown > 200) return;
  const found = new Highlight();
  for (const article of articles) {
    if (article.hidden) continue;
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && found.size < 2000) {
      const text = walker.currentNode.data.toLowerCase();
      if (text.length !== walker.currentNode.length) continue;
      for (const word of words)
        for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, at + word.length);
          found.add(range);
        }
    }
  }
  CSS.highlights.set("found", found);
}

field.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(search, articles.length > 300 ? 200 : 0);
});

window.addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target || !target.hidden) return;
  field.value = "";
  search();
  target.scrollIntoView();
});

const actions = {
  unfold(button) {
    const open = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", open);
    for (const details of find("article details")) details.open = open;
  },
  order(button) {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    const list = document.getElementById("entries");
    const days = find(".date");
    const end = days.length ? days[days.length - 1].nextSibling : null;
    for (const day of days.reverse()) {
      day.append(...find("article", day).reverse());
      list.insertBefore(day, end);
    }
  },
  theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  },
};
for (const button of find("button[data-do]")) button.addEventListener("click", () => actions[button.dataset.do](button));

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === field) {
    if (event.key === "Escape") { field.value = ""; search(); field.blur(); }
    return;
  }
  if (event.key === "/") { field.focus(); event.preventDefault(); }
  if (event.key !== "j" && event.key !== "k") return;
  const visible = find("article:not([hidden])");
  const here = visible.findIndex(each => each.contains(document.activeElement));
  const next = visible[event.key === "j" ? here + 1 : Math.max(here - 1, 0)];
  if (next) { next.querySelector("h4 a").focus(); next.scrollIntoView({ block: "nearest" }); }
});
