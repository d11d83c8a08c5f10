// -- the list of questions, by the page --------------------------------------------------------------------------------

const PAGE = 24;
let outcome = {};
let matching = []; // numbers of the questions that match, sorted
let turn = 0;

async function search() {
  turn += 1;
  const mine = turn;
  let found = candidates(outcome);
  if (state.text) found = await withText(found, state.text, () => mine !== turn);
  if (found === null) return;
  matching = sorted(found);
  await showPage();
}

async function showPage() {
  const mine = turn;
  const pages = Math.max(Math.ceil(matching.length / PAGE), 1);
  const page = Math.min(Number(state.page), pages);
  const from = (page - 1) * PAGE;
  const numbers = matching.slice(from, from + PAGE);
  const questions = await Promise.all(numbers.map(questionAt));
  if (mine !== turn) return;
  const cases = new Set(matching.map((q) => index.case[q])).size;
  const which = matching.length > PAGE ? ` ${from + 1} to ${from + numbers.length} are shown.` : "";
  document.getElementById("count").textContent = `${cases} cases with ${matching.length} questions match.${which}`;
  document.getElementById("list").replaceChildren(...groupsOf(questions).map(caseNode));
  document.getElementById("pager").replaceChildren(...(pages > 1 ? pagerNodes(page, pages) : []));
}

// Questions of one case that follow each other share its card.
function groupsOf(questions) {
  const groups = [];
  for (const question of questions) {
    const open = groups[groups.length - 1];
    if (open && open[0].probe.case === question.probe.case) open.push(question);
    else groups.push([question]);
  }
  return groups;
}

function caseNode(questions) {
  const { entry } = questions[0];
  const link = make("a", { href: caseAddress(entry, entry.chain > 3 ? { step: questions[0].probe.step } : {}), title: "this case alone" },
    written("span", "", entry.id));
  const head = make("h3", {}, link, make("span", { className: "chip", textContent: entry.task }), ...Object.entries(entry.tags).map(chip));
  const inserted = insertedNodes(Object.assign({}, ...questions.map((question) => question.chain)), false);
  const chain = make("details", { className: "inserted" }, make("summary", { textContent: "What was inserted" }), ...inserted);
  return make("article", { className: "case" }, head, inserted.length ? chain : null, ...questions.map(questionNode));
}

function pagerNodes(page, pages) {
  const turnTo = (to) => {
    changed({ page: String(Math.min(Math.max(to, 1), pages)) });
    focusHead("cases");
  };
  const button = (text, to) => {
    const node = make("button", { type: "button", textContent: text, disabled: to < 1 || to > pages });
    node.addEventListener("click", () => turnTo(to));
    return node;
  };
  const field = make("input", { type: "number", min: 1, max: pages, value: page, name: "page" });
  field.addEventListener("change", () => turnTo(Number(field.value) || 1));
  return [button("Previous", page - 1), make("label", {}, "Page ", field, ` of ${pages}`), button("Next", page + 1)];
}

// -- places ------------------------------------------------------------------------------------------------------------

function listAddress() {
  return address("cases", Object.entries(state).filter(([key, value]) => value && !(key === "page" && value === "1")));
}

// A control was used: another page of the same list, or another list.
function changed(change) {
  settle({ ...state, page: "1", ...change });
  history.replaceState(null, "", listAddress());
  return search();
}

function focusHead(id) {
  const head = document.querySelector(`#${id} h2`);
  head.focus({ preventScroll: true });
  head.scrollIntoView({ block: "start", behavior: "instant" });
}

const step = (text, number) => make("a", { href: caseAddress(index.cases[number]), textContent: text });

function neighbours(number) {
  const cases = [...new Set(matching.map((q) => index.case[q]))];
  const at = cases.indexOf(number);
  if (at < 0) return [];
  return [at > 0 ? step("Previous case", cases[at - 1]) : null, at < cases.length - 1 ? step("Next case", cases[at + 1]) : null];
}

let visit = 0;
let left = ""; // address of the case that was open alone, to come back to where it stands in the list

async function go() {
  visit += 1;
  const mine = visit;
  const { name, query } = place();
  const alone = name === "case";
  if (alone) {
    const list = make("a", { href: listAddress(), textContent: "All cases" });
    const nodes = await study(query, list, neighbours);
    if (mine !== visit) return;
    document.getElementById("study").replaceChildren(...nodes);
  } else if (name === "cases") {
    settle(Object.fromEntries(query));
    await search();
  }
  document.getElementById("study").hidden = !alone;
  document.body.classList.toggle("alone", alone);
  const link = alone ? null : [...document.querySelectorAll(".case h3 a")].find((one) => one.hash === left);
  left = alone ? location.hash : "";
  if (link) {
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: "center", behavior: "instant" });
  } else if (alone || (name === "cases" && location.hash.includes("?"))) focusHead(alone ? "study" : "cases");
  else if (name && document.getElementById(name)) document.getElementById(name).scrollIntoView();
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("count").textContent = "The browser of cases needs a newer web browser: one that has DecompressionStream.";
    return;
  }
  await readIndex();
  outcome = outcomes();
  fillForm(document.getElementById("filters"), outcome);
  settle(place().name === "cases" ? Object.fromEntries(place().query) : {});
  if (place().name !== "cases") await search(); // else go does
  addEventListener("hashchange", go);
  await go();
  document.body.dataset.ready = "yes";
}

start();
