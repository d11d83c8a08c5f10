// -- a case study: everything of one case in one view -------------------------------------------------------------------

const COLUMNS = 5; // questions side by side in a table
const STEPS = 3; // steps of a chain in one view

function rangeOf(number) {
  const first = index.case.indexOf(number);
  return [first, index.case.lastIndexOf(number) + 1];
}

function findCase(query) {
  return index.cases.findIndex((entry) => entry.task === query.get("task") && entry.id === query.get("id"));
}

async function study(query, list, neighbours) {
  const number = findCase(query);
  if (number < 0) return [make("h2", { tabIndex: -1 }, "No such case"), make("p", {}, `This page has no case ${query.get("id")}. `, list)];
  const entry = index.cases[number];
  const [first, end] = rangeOf(number);
  const steps = [...new Set(index.step.slice(first, end))].sort((a, b) => a - b);
  const from = Math.max(steps.indexOf(Number(query.get("step"))), 0);
  const inView = new Set(steps.slice(from, from + STEPS));
  const numbers = [];
  for (let at = first; at < end; at += 1) if (inView.has(index.step[at])) numbers.push(at);
  const questions = await Promise.all(numbers.map(questionAt));
  const chain = Object.assign({}, ...questions.map((question) => question.chain));
  const inserted = insertedNodes(chain, true);
  const head = make("h2", { tabIndex: -1 }, written("span", "", entry.id), make("span", { className: "chip", textContent: entry.task }),
    ...Object.entries(entry.tags).map(chip));
  const pages = steps.length > STEPS ? [stepLinks(entry, steps, from)] : [];
  const nav = make("nav", { className: "paths", ariaLabel: "Cases" }, list, ...neighbours(number), printButton());
  return [nav, head, ...pages, ...(inserted.length ? [make("div", { className: "chain" }, ...inserted)] : []), ...tables(questions, inView)];
}

function printButton() {
  const button = make("button", { type: "button", textContent: "Print" });
  button.addEventListener("click", () => window.print());
  return button;
}

function stepLinks(entry, steps, from) {
  const to = Math.min(from + STEPS, steps.length);
  const link = (at, text) => make("a", { href: caseAddress(entry, { step: steps[at] }), textContent: text });
  return make("p", { className: "steps" }, `Steps ${steps[from]} to ${steps[to - 1]} of ${steps[steps.length - 1]}. `,
    from > 0 ? link(Math.max(from - STEPS, 0), "Earlier steps") : null, " ", to < steps.length ? link(to, "Later steps") : null);
}

function tables(questions, steps) {
  return [...steps].flatMap((step) => {
    const found = questions.filter((question) => question.probe.step === step);
    const rows = [];
    for (let at = 0; at < found.length; at += COLUMNS) rows.push(tableNode(found.slice(at, at + COLUMNS)));
    const title = questions[0].entry.chain > 1 ? [make("h3", { textContent: `Questions of step ${step}` })] : [];
    return [...title, ...rows];
  });
}

function tableNode(questions) {
  const heads = questions.map((question) => make("th", { scope: "col" }, ...questionTitle(question)));
  const labels = questions.map(({ entry, probe }) => dimensionOf(entry.task, probe.dimension).label);
  const row = (className, name, cells) =>
    make("tr", { className }, make("th", { scope: "row", textContent: name, dir: "auto" }), ...cells.map((cell, at) => labelled(cell, labels[at])));
  const ask = questions.map(({ probe }) => make("td", {}, pictures(probe.images, "image of the question", "no image"),
    ...contextNodes(probe), written("p", "text", asked(probe), probe.language)));
  const references = questions.map(({ probe }) => make("td", {}, probe.fromBase ? make("b", { textContent: "unedited model" }) : null,
    written("p", "text", probe.reference, probe.language)));
  const editors = editorsShown().map((editor) => row("", called(editor), questions.map((question) => answerCell(question, editor))));
  const body = make("tbody", {}, row("ask", "Question", ask), row("reference", "Reference", references), ...editors);
  const table = make("table", { className: "study" }, make("thead", {}, make("tr", {}, make("td", {}), ...heads)), body);
  return make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Questions and answers" }, table);
}

function labelled(cell, label) {
  cell.dataset.label = label;
  return cell;
}

function answerCell(question, editor) {
  const answers = answersOf(question.probe, editor);
  if (!answers.length) return make("td", { className: "none", textContent: "not asked" });
  return make("td", {}, scoreNode(question, last(answers)), ...answerParts(question, answers));
}
