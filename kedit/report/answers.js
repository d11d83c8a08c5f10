// -- elements ----------------------------------------------------------------------------------------------------------

const RTL = new Set(["ar", "fa", "he", "ps", "ug", "ur", "yi"]);
const shown = { way: 0, hidden: new Set() }; // by which score, and which editors are left out

function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function written(tag, className, text, language) {
  const right = RTL.has((language || "").split("-")[0]);
  return make(tag, { className, textContent: text, lang: language || "", dir: right ? "rtl" : "auto" });
}

const spaced = (name) => name.replaceAll("_", " ");
const chip = ([name, value]) => make("span", { className: "chip", textContent: `${spaced(name)}: ${value}`, dir: "auto" });
const called = (editor) => (editor === data.base ? `${editor} (unedited)` : editor);
const editorsShown = () => data.editors.filter((editor) => !shown.hidden.has(editor));

// -- one answer --------------------------------------------------------------------------------------------------------

const last = (answers) => answers.reduce((a, b) => (b.after >= a.after ? b : a));
const answersOf = (probe, editor) => (Object.hasOwn(probe.answers, editor) ? probe.answers[editor] : []);
const own = (answer, way) => (way ? answer.others[way - 1] : answer);
const told = (answer) => own(answer, shown.way) || answer;
const number = (score) => (score === null ? "unscored" : score.toFixed(1));

function scoreClass(question, score) {
  if (score === null) return "score unscored";
  return score < thresholds[question.number] ? "score low" : "score";
}

function scoreNode(question, answer) {
  const { score } = told(answer);
  const fails = score !== null && score < thresholds[question.number];
  const title = score === null ? "" : fails ? "fails" : "passes";
  return make("span", { className: scoreClass(question, score), title }, number(score),
    title ? make("span", { className: "unseen", textContent: ` (${title})` }) : null);
}

function bar(question, answer) {
  const { score } = told(answer);
  const fill = make("i", {});
  fill.style.width = `${score === null ? 0 : score}%`;
  return make("div", { className: `bar ${scoreClass(question, score)}` }, fill);
}

const term = (name, value) => make("div", {}, make("dt", { textContent: name }), written("dd", "", value));

// Every score with its reason, where there is more to say than the number above.
function scoreNodes(answer) {
  const rows = data.ways.flatMap((label, way) => {
    const score = own(answer, way);
    if (!score || (way === shown.way && !score.why)) return [];
    return [term(label, score.why ? `${number(score.score)}, ${score.why}` : number(score.score))];
  });
  return rows.length ? [make("dl", { className: "ways" }, ...rows)] : [];
}

const looked = (trace) => "similarity" in trace || "nearest" in trace;
const applied = (trace) => "entry" in trace || "entries" in trace;

// What the editor did with the request: whether an entry applied, which, and how similar it is.
function traceNodes(answer) {
  const rows = Object.entries(answer.trace);
  if (!rows.length) return [];
  const used = applied(answer.trace);
  const decided = used || looked(answer.trace)
    ? make("span", { className: used ? "route used" : "route", textContent: used ? "entry applied" : "no entry applied" }) : null;
  const terms = rows.map(([name, value]) => term(spaced(name), value));
  return [...(decided ? [decided] : []), make("dl", { className: "trace" }, ...terms)];
}

function earlierNode(question, earlier) {
  const rows = earlier.map((answer) =>
    make("div", {}, make("div", { className: "by" }, `after step ${answer.after}`, scoreNode(question, answer)),
      written("p", "text", answer.text, question.probe.language), ...scoreNodes(answer), ...traceNodes(answer)));
  return make("details", { className: "earlier" }, make("summary", { textContent: "asked earlier" }), ...rows);
}

// Below the name of the editor: bar, text, scores, what was done, flags, earlier answers.
function answerParts(question, answers) {
  const final = last(answers);
  const earlier = answers.filter((answer) => answer !== final);
  return [
    bar(question, final), written("p", "text", final.text, question.probe.language), ...scoreNodes(final), ...traceNodes(final),
    ...final.flags.map((flag) => make("span", { className: "flag", textContent: spaced(flag) })),
    ...(earlier.length ? [earlierNode(question, earlier)] : []),
  ];
}

function answerNode(question, editor) {
  const answers = answersOf(question.probe, editor);
  if (!answers.length) return null;
  const head = make("div", { className: "by" }, make("span", { textContent: called(editor), dir: "auto" }),
    scoreNode(question, last(answers)));
  return make("div", { className: "answer", role: "listitem" }, head, ...answerParts(question, answers));
}

// -- one question ------------------------------------------------------------------------------------------------------

const asked = (probe) => (probe.question === null ? "(the question was not kept)" : probe.question);

function pictures(images, alt, none) {
  const nodes = images.map((digest) => digest !== null && Object.hasOwn(data.images, digest)
    ? make("img", { src: data.images[digest], alt, loading: "lazy" })
    : make("div", { className: "missing", textContent: "image not kept" }));
  if (!nodes.length && none) nodes.push(make("div", { className: "missing", textContent: none }));
  return make("div", { className: "pictures" }, ...nodes);
}

function questionTitle({ entry, probe }) {
  const chained = entry.chain > 1 || probe.step > 1;
  const about = `${probe.language}${chained ? `, of step ${probe.step}` : ""}`;
  const tags = Object.entries(probe.tags).filter(([name]) => !Object.hasOwn(entry.tags, name));
  return [`${dimensionOf(entry.task, probe.dimension).label} `, make("span", { textContent: about }), ...tags.map(chip)];
}

function contextNodes(probe) {
  if (!probe.context.length) return [];
  const texts = probe.context.map((text) => written("p", "text", text, probe.language));
  return [make("details", {}, make("summary", { textContent: "Context of the question" }), ...texts)];
}

const referenceTitle = (probe) => (probe.fromBase ? "reference (unedited)" : "reference");

function questionNode(question) {
  const { probe } = question;
  const reference = make("div", { className: "answer reference", role: "listitem" },
    make("div", { className: "by", textContent: referenceTitle(probe) }), written("p", "text", probe.reference, probe.language));
  const cards = editorsShown().map((editor) => answerNode(question, editor));
  const body = make("div", {}, make("h4", {}, ...questionTitle(question)), ...contextNodes(probe),
    written("p", "text question", asked(probe), probe.language),
    make("div", { className: "answers", role: "list" }, reference, ...cards));
  return make("div", { className: "probe" }, pictures(probe.images, "image of the question", "no image"), body);
}

// -- what was inserted -------------------------------------------------------------------------------------------------

function insertedNode(step, item, pictured) {
  const more = item.text ? [make("details", {}, make("summary", { textContent: "Its document" }), written("p", "text", item.text))] : [];
  return make("div", { className: "item" }, pictured ? pictures(item.images, "inserted image", "") : null,
    make("div", {}, make("b", { textContent: `Inserted at step ${step} (${item.language})` }),
      item.title ? written("p", "text title", item.title) : null,
      written("p", "text", item.question, item.language), written("p", "text", item.answer, item.language), ...more));
}

const insertedNodes = (chain, pictured) => Object.entries(chain).map(([step, item]) => insertedNode(step, item, pictured));
