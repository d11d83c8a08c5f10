"use strict";
// Every text of a run enters the page through textContent or a property: nothing in it is ever parsed as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const PARTS_KEPT = 48;
const UNSCORED = -1;
let index; // columns over all questions, as kedit/report/pack.py writes them
let thresholds; // by question: the score below which an answer fails
const inflated = new Map(); // number of a part -> promise of it, the one used last at the end

async function inflate(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function readIndex() {
  index = await inflate(data.index);
  const passes = index.dimensions.map(([task, name]) => dimensionOf(task, name).pass);
  thresholds = index.dimension.map((at) => passes[at]);
}

function part(number) {
  const found = inflated.get(number) || inflate(data.parts[number]);
  inflated.delete(number);
  inflated.set(number, found);
  if (inflated.size > PARTS_KEPT) inflated.delete(inflated.keys().next().value);
  return found;
}

// The part that a question is in: the last that starts at it or before.
function partOf(question) {
  let low = 0;
  let high = index.starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (index.starts[middle] <= question) low = middle;
    else high = middle - 1;
  }
  return low;
}

async function questionAt(number) {
  const at = partOf(number);
  const held = await part(at);
  const probe = held.questions[number - index.starts[at]];
  return { number, probe, entry: index.cases[probe.case], chain: held.chains[probe.case] || {} };
}

function dimensionOf(task, name) {
  const known = Object.hasOwn(data.tasks, task) ? data.tasks[task] : {};
  return Object.hasOwn(known, name) ? known[name] : { label: name, pass: 0 };
}

// -- places on the page ------------------------------------------------------------------------------------------------

// "#name?key=value&...": the name of a place, and what is shown there.
function place() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name, query: new URLSearchParams(query || "") };
}

const address = (name, values) => `#${name}?${new URLSearchParams(values)}`;
const caseAddress = (entry, more) => address("case", { task: entry.task, id: entry.id, ...more });
