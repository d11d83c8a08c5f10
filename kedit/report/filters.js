// -- what is looked for ------------------------------------------------------------------------------------------------

const tag = (name) => (entry) => (Object.hasOwn(entry.tags, name) ? entry.tags[name] : "");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const CASE_FILTERS = [
  ["task", "Task", (entry) => entry.task],
  ...Object.entries(data.groups).map(([name, heading]) => [`tag ${name}`, capital(heading), tag(name)]),
  ["order", "Order of chain", tag("order")],
];
const SORTS = [["", "case"], ["spread", "disagreement"], ["low", "lowest score"], ["high", "highest score"]];
const state = { page: "1" }; // texts by name of a control, empty for "all"; what the address holds
const controls = {};
const FLAG = "flag ";

// Whether an editor's answer to a question has the outcome.
function outcomes() {
  const score = (q, e) => index.scores[shown.way][e][q];
  const scored = (q, e) => score(q, e) !== null && score(q, e) !== UNSCORED;
  const found = {
    pass: ["passes", (q, e) => scored(q, e) && score(q, e) >= thresholds[q]],
    fail: ["fails", (q, e) => scored(q, e) && score(q, e) < thresholds[q]],
    unscored: ["unscored", (q, e) => score(q, e) === UNSCORED],
  };
  if (index.applied.some((column) => column.some((value) => value > 0))) {
    found.applied = ["an entry applied", (q, e) => index.applied[e][q] === 1];
    found.untouched = ["no entry applied", (q, e) => index.applied[e][q] === 2];
  }
  for (const name of [...index.flagNames].sort()) {
    const bit = 1 << index.flagNames.indexOf(name);
    found[FLAG + name] = [spaced(name), (q, e) => (index.flags[e][q] & bit) !== 0];
  }
  return found;
}

// -- the form ----------------------------------------------------------------------------------------------------------

function chooser(key, label, options, all = "all") {
  const choices = options.map(([value, text]) => new Option(text, value));
  const select = make("select", { name: key }, ...(all === null ? [] : [new Option(all, "")]), ...choices);
  select.addEventListener("change", () => changed({ [key]: select.value }));
  controls[key] = select;
  return make("label", {}, label, select);
}

function fillForm(form, outcome) {
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const [key, label, value] of CASE_FILTERS) {
    const values = [...new Set(index.cases.map(value))]; // "" where a case has none
    const options = values.filter((one) => one !== "").map((option) => [option, option]);
    if (values.length > 1) form.append(chooser(key, label, options));
  }
  const labels = new Map(index.dimensions.map(([task, name]) => [name, dimensionOf(task, name).label]));
  if (labels.size > 1) form.append(chooser("dimension", "Dimension", [...labels]));
  form.append(chooser("editor", "Editor", data.editors.map((editor) => [editor, called(editor)]), "any"));
  form.append(chooser("outcome", "Outcome", Object.entries(outcome).map(([key, [text]]) => [key, text]), "any"));
  if (data.ways.length > 1) form.append(chooser("way", "Scored by", data.ways.map((label, at) => [at ? String(at) : "", label]), null));
  form.append(chooser("sort", "Sorted by", SORTS, null), searchBox(), editorBoxes(), resetButton());
}

function searchBox() {
  const search = make("input", { type: "search", name: "text", size: 16 });
  let waiting;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => changed({ text: search.value.trim() }), 150);
  });
  controls.text = search;
  return make("label", {}, "Text", search);
}

function editorBoxes() {
  const boxes = data.editors.map((editor) => {
    const box = make("input", { type: "checkbox", value: editor, checked: true });
    box.addEventListener("change", () => changed({ hidden: JSON.stringify(boxes.filter((b) => !b.checked).map((b) => b.value)) }));
    return box;
  });
  controls.hidden = boxes;
  const labels = boxes.map((box) => make("label", {}, box, make("span", { textContent: called(box.value), dir: "auto" })));
  return make("details", { id: "editors" }, make("summary", { textContent: "Editors shown" }), make("div", {}, ...labels));
}

function resetButton() {
  const button = make("button", { type: "button", id: "reset", textContent: "Reset" });
  button.addEventListener("click", () => changed(Object.fromEntries(Object.keys(state).map((key) => [key, ""]))));
  return button;
}

function hiddenEditors(text) {
  try {
    const found = JSON.parse(text || "[]");
    return new Set(Array.isArray(found) ? found.filter((editor) => data.editors.includes(editor)) : []);
  } catch {
    return new Set();
  }
}

// Takes a state over into the controls; what they do not offer is dropped.
function settle(values) {
  for (const [key, control] of Object.entries(controls)) {
    if (key === "hidden") continue;
    control.value = values[key] || "";
    state[key] = control.value;
  }
  shown.hidden = hiddenEditors(values.hidden);
  state.hidden = shown.hidden.size ? JSON.stringify([...shown.hidden]) : "";
  for (const box of controls.hidden) box.checked = !shown.hidden.has(box.value);
  state.page = String(Math.max(Math.floor(Number(values.page)) || 1, 1));
  shown.way = Number(state.way || 0);
}

// -- finding and sorting -----------------------------------------------------------------------------------------------

function casesWanted() {
  const wanted = CASE_FILTERS.filter(([key]) => state[key]);
  return index.cases.map((entry) => wanted.every(([key, , value]) => value(entry) === state[key]));
}

// Numbers of the questions that match everything but the text, in the order of the run.
function candidates(outcome) {
  const cases = casesWanted();
  const dimensions = index.dimensions.map(([, name]) => !state.dimension || name === state.dimension);
  const wanted = Object.hasOwn(outcome, state.outcome) ? outcome[state.outcome][1] : (q, e) => index.scores[shown.way][e][q] !== null;
  const editors = (state.editor ? [state.editor] : editorsShown()).map((editor) => data.editors.indexOf(editor));
  const any = !state.editor && !state.outcome;
  const found = [];
  for (let q = 0; q < index.case.length; q += 1) {
    if (cases[index.case[q]] && dimensions[index.dimension[q]] && (any || editors.some((e) => wanted(q, e)))) found.push(q);
  }
  return found;
}

function textsOf({ probe, entry, chain }) {
  const answers = Object.values(probe.answers).flat();
  const step = chain[probe.step];
  return [
    entry.id, probe.question || "", probe.reference, ...(step ? [step.question, step.answer, step.title || ""] : []),
    ...answers.flatMap((a) => [a.text, a.why, ...Object.values(a.trace), ...(a.others || []).map((o) => (o ? o.why : ""))]),
  ];
}

// Of the questions those in which the text stands; parts without any candidate stay closed. None once it is outdated.
async function withText(found, text, outdated) {
  const wanted = text.toLowerCase();
  const kept = [];
  let at = -1;
  for (const number of found) {
    if (partOf(number) !== at) {
      at = partOf(number);
      await part(at);
      if (outdated()) return null;
      document.getElementById("count").textContent = `Searching, ${Math.round((100 * at) / data.parts.length)} % …`;
    }
    if (textsOf(await questionAt(number)).some((one) => one.toLowerCase().includes(wanted))) kept.push(number);
  }
  return outdated() ? null : kept;
}

// By what questions are sorted: the editors that do something, where there are any among those shown.
function compared() {
  const edited = editorsShown().filter((editor) => editor !== data.base);
  const names = edited.length > 1 || (edited.length && state.sort !== "spread") ? edited : editorsShown();
  return names.map((editor) => data.editors.indexOf(editor));
}

function sorted(found) {
  if (!state.sort) return found;
  const scores = index.scores[shown.way];
  const editors = state.editor && state.sort !== "spread" ? [data.editors.indexOf(state.editor)] : compared();
  const value = (q) => {
    const have = editors.map((e) => scores[e][q]).filter((score) => score !== null && score !== UNSCORED);
    if (!have.length) return Infinity;
    const mean = have.reduce((a, b) => a + b, 0) / have.length;
    return { spread: Math.min(...have) - Math.max(...have), low: mean, high: -mean }[state.sort];
  };
  const values = new Map(found.map((q) => [q, value(q)]));
  return [...found].sort((a, b) => (values.get(a) === values.get(b) ? a - b : values.get(a) - values.get(b)));
}
