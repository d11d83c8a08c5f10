
"use strict";
// Every text of a run enters the page through textContent or a property: nothing in it is ever parsed as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const RTL = new Set(["ar", "fa", "he", "ps", "ug", "ur", "yi"]);
const PAGE = 10;
const UNNAMED = { label: "", pass: 0 };

function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function written(tag, className, text, language) {
  const right = RTL.has((language || "").split("-")[0]);
  return make(tag, { className, textContent: text, lang: language || "", dir: right ? "rtl" : "auto" });
}

function dimension(entry, probe) {
  const known = Object.hasOwn(data.tasks, entry.task) ? data.tasks[entry.task] : {};
  return Object.hasOwn(known, probe.dimension) ? known[probe.dimension] : { ...UNNAMED, label: probe.dimension };
}

const last = (answers) => answers.reduce((a, b) => (b.after >= a.after ? b : a));
const answersOf = (probe, editor) => (Object.hasOwn(probe.answers, editor) ? probe.answers[editor] : []);

function fails(entry, probe, editor) {
  const answers = answersOf(probe, editor);
  const score = answers.length ? last(answers).score : null;
  return score !== null && score < dimension(entry, probe).pass;
}

// -- filters -----------------------------------------------------------------------------------------------------------

const tag = (name) => (entry) => (Object.hasOwn(entry.tags, name) ? entry.tags[name] : "");
const CASE_FILTERS = [
  ["task", "Task", (entry) => entry.task],
  ...Object.entries(data.groups).map(([name, heading]) => [`tag ${name}`, heading.charAt(0).toUpperCase() + heading.slice(1), tag(name)]),
  ["order", "Order", tag("order")],
];
const state = { dimension: "", editor: "", flag: "", text: "", shown: PAGE };

function distinct(values) {
  return [...new Set(values)].filter((value) => value !== "");
}

function chooser(key, label, options) {
  state[key] = "";
  const select = make("select", { name: key }, new Option("all", ""), ...options.map(([value, text]) => new Option(text, value)));
  select.addEventListener("change", () => update({ [key]: select.value }));
  return make("label", {}, label, select);
}

function filters() {
  const form = document.getElementById("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const [key, label, value] of CASE_FILTERS) {
    const options = distinct(data.cases.map(value)).map((option) => [option, option]);
    if (options.length > 1) form.append(chooser(key, label, options));
    else state[key] = "";
  }
  const probes = data.cases.flatMap((entry) => entry.probes.map((probe) => [entry, probe]));
  const labels = new Map(probes.map(([entry, probe]) => [probe.dimension, dimension(entry, probe).label]));
  form.append(chooser("dimension", "Dimension", [...labels]));
  form.append(chooser("editor", "Fails with", data.editors.map((editor) => [editor, editor])));
  const flags = distinct(probes.flatMap(([, probe]) => Object.values(probe.answers).flat().flatMap((answer) => answer.flags)));
  if (flags.length) form.append(chooser("flag", "Flag", flags.sort().map((flag) => [flag, flag.replaceAll("_", " ")])));
  const search = make("input", { type: "search", name: "text", size: 16 });
  search.addEventListener("input", () => update({ text: search.value.trim().toLowerCase() }));
  form.append(make("label", {}, "Text", search));
}

function probesShown(entry) {
  return entry.probes.filter((probe) => {
    const answers = Object.values(probe.answers).flat();
    if (state.dimension && probe.dimension !== state.dimension) return false;
    if (state.editor && !fails(entry, probe, state.editor)) return false;
    if (state.flag && !answers.some((answer) => answer.flags.includes(state.flag))) return false;
    if (!state.text) return true;
    const texts = [entry.id, probe.question || "", probe.reference, ...answers.map((answer) => answer.text)];
    return texts.some((text) => text.toLowerCase().includes(state.text));
  });
}

function update(change) {
  Object.assign(state, { shown: PAGE }, change);
  const found = [];
  for (const entry of data.cases) {
    if (!CASE_FILTERS.every(([key, , value]) => !state[key] || value(entry) === state[key])) continue;
    const probes = probesShown(entry);
    if (probes.length) found.push([entry, probes]);
  }
  const answered = found.reduce((sum, [, probes]) => sum + probes.length, 0);
  document.getElementById("count").textContent = `${found.length} cases with ${answered} questions match.`;
  const list = document.getElementById("list");
  list.replaceChildren(...found.slice(0, state.shown).map(([entry, probes]) => caseNode(entry, probes)));
  if (found.length > state.shown) {
    const more = make("button", { id: "more", type: "button", textContent: `Show ${Math.min(PAGE, found.length - state.shown)} more` });
    more.addEventListener("click", () => update({ shown: state.shown + PAGE }));
    list.append(more);
  }
}

// -- one case ----------------------------------------------------------------------------------------------------------

const chip = ([name, value]) => make("span", { className: "chip", textContent: `${name.replaceAll("_", " ")}: ${value}` });

function caseNode(entry, probes) {
  const chips = Object.entries(entry.tags).map(chip);
  const head = make("h3", {}, written("span", "", entry.id), make("span", { className: "chip", textContent: entry.task }), ...chips);
  const inserted = entry.chain.map((item, index) =>
    make("div", {}, make("b", { textContent: `Inserted at step ${index + 1} (${item.language})` }),
      written("p", "text", item.question, item.language), written("p", "text", item.answer, item.language)));
  const chain = make("details", { className: "inserted" }, make("summary", { textContent: "What was inserted" }), ...inserted);
  const shown = probes.map((probe) => probeNode(entry, probe));
  return make("article", { className: "case" }, head, inserted.length ? chain : null, ...shown);
}

function probeNode(entry, probe) {
  const chained = entry.chain.length > 1 || probe.step > 1;
  const about = `${probe.language}${chained ? `, of step ${probe.step}` : ""}`;
  const own = Object.entries(probe.tags).filter(([name]) => !Object.hasOwn(entry.tags, name));
  const title = make("h4", {}, `${dimension(entry, probe).label} `, make("span", { textContent: about }), ...own.map(chip));
  const question = probe.question === null ? "(the question was not kept)" : probe.question;
  const body = make("div", {}, title, ...contextNodes(probe), written("p", "text question", question, probe.language));
  const cards = data.editors.map((editor) => answerNode(entry, probe, editor)).filter((card) => card !== null);
  body.append(make("div", { className: "answers" }, referenceNode(probe), ...cards));
  return make("div", { className: "probe" }, pictures(probe), body);
}

function contextNodes(probe) {
  if (!probe.context.length) return [];
  const texts = probe.context.map((text) => written("p", "text", text, probe.language));
  return [make("details", {}, make("summary", { textContent: "Context of the question" }), ...texts)];
}

function pictures(probe) {
  const nodes = probe.images.map((digest) => digest !== null && Object.hasOwn(data.images, digest)
    ? make("img", { src: data.images[digest], alt: "image of the question", loading: "lazy" })
    : make("div", { className: "missing", textContent: "image not kept" }));
  return make("div", { className: "pictures" }, ...(nodes.length ? nodes : [make("div", { className: "missing", textContent: "no image" })]));
}

function referenceNode(probe) {
  const title = probe.fromBase ? "reference (unedited)" : "reference";
  return make("div", { className: "answer reference" }, make("header", {}, title), written("p", "text", probe.reference, probe.language));
}

function answerNode(entry, probe, editor) {
  const answers = answersOf(probe, editor);
  if (!answers.length) return null;
  const final = last(answers);
  const head = make("header", {}, editor === data.base ? `${editor} (unedited)` : editor, scoreNode(entry, probe, final));
  const card = make("div", { className: "answer" }, head, bar(entry, probe, final), written("p", "text", final.text, probe.language));
  card.append(...traceNodes(final));
  card.append(...final.flags.map((flag) => make("span", { className: "flag", textContent: flag.replaceAll("_", " ") })));
  const earlier = answers.filter((answer) => answer !== final);
  if (earlier.length) card.append(history(entry, probe, earlier));
  return card;
}

// What the editor did with the request, such as the entry it found and how similar that is.
function traceNodes(answer) {
  const rows = Object.entries(answer.trace);
  if (!rows.length) return [];
  const terms = rows.map(([name, value]) =>
    make("div", {}, make("dt", { textContent: name.replaceAll("_", " ") }), written("dd", "", value)));
  return [make("dl", { className: "trace" }, ...terms)];
}

function scoreClass(entry, probe, answer) {
  if (answer.score === null) return "score unscored";
  return answer.score < dimension(entry, probe).pass ? "score low" : "score";
}

function scoreNode(entry, probe, answer) {
  const text = answer.score === null ? "unscored" : answer.score.toFixed(1);
  return make("span", { className: scoreClass(entry, probe, answer), textContent: text, title: answer.why });
}

function bar(entry, probe, answer) {
  const fill = make("i", {});
  fill.style.width = `${answer.score === null ? 0 : answer.score}%`;
  return make("div", { className: `bar ${scoreClass(entry, probe, answer)}` }, fill);
}

function history(entry, probe, earlier) {
  const rows = earlier.map((answer) =>
    make("div", {}, make("header", {}, `after step ${answer.after}`, scoreNode(entry, probe, answer)),
      written("p", "text", answer.text, probe.language), ...traceNodes(answer)));
  return make("details", {}, make("summary", { textContent: "asked earlier" }), ...rows);
}

filters();
update({});
