// The page of a server: writes with its model, and shows how sure the model was.
// Of a classifier it shows the classes of a text, with their probabilities; of a
// model that forecasts series, its streams (streams.js).
//
// A conversation is a list of turns; each has the text that was given, the
// tokens that were made, and the state after them, which the page keeps as a
// value. A fork is a list that shares the first turns. All texts are strangers'
// data: they are only ever set as textContent.
'use strict';

const EDGES = [0.5, 1, 2, 3, 4, 6, 8, 12]; // bits between two shades
const TOP = 5; // alternatives that are asked for
const LARGEST = 2 ** 20; // bytes of a state that the page keeps itself
const EVERY = 1000; // milliseconds between two looks at the slots
const CLASSES = 12; // that are shown of a text

const $ = id => document.getElementById(id);
const branches = [{name: '1', turns: []}];
let current = branches[0];
let model = null;
let running = null; // an AbortController

// The server.

function headers() {
  const key = sessionStorage.getItem('key');
  const given = {'Content-Type': 'application/json'};
  return key ? {...given, Authorization: 'Bearer ' + key} : given;
}

async function ask(path, body, signal) {
  const options = body === undefined
    ? {headers: headers()}
    : {method: 'POST', headers: headers(), body: JSON.stringify(body), signal};
  const response = await fetch(path, options);
  if (response.ok) return response;
  let message = 'The server answers with status ' + response.status;
  let code = null;
  try {
    ({message, code} = (await response.json()).error);
  } catch { /* not of this server */ }
  if (response.status === 401) throw new WantsKey(code);
  throw new Error(message);
}

// The server doesn't know who asks: what the page says, in words for people.
class WantsKey extends Error {
  constructor(code) {
    super(code === 'invalid_api_key'
      ? 'The server does not know this key. Check it, or ask for another one.'
      : '');
    sessionStorage.removeItem('key');
    $('entry').hidden = false;
    $('composer').hidden = $('observe').hidden = true;
    $('key').focus();
  }
}

function fail(error) {
  $('error').textContent = error.message;
  $('error').hidden = !error.message;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (left + value).split('\n\n');
    left = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, '');
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

// Tokens.

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function bytes(token) {
  const escaped = token.startsWith('bytes:')
    && token.slice(6).match(/^(\\x[0-9a-f]{2})+$/);
  if (!escaped) return new TextEncoder().encode(token);
  return Uint8Array.from(token.slice(6).match(/[0-9a-f]{2}/g),
    pair => parseInt(pair, 16));
}

function visible(text) {
  return text.replaceAll('\n', '↵\n').replace(
    /[\p{Cc}\p{Cf}]/gu,
    c => '\n\t'.includes(c) ? c : '‹' + c.codePointAt().toString(16) + '›');
}

function shade(bits) {
  return 'c' + EDGES.filter(edge => bits >= edge).length;
}

function bitsOf(token) {
  return -token.logprob / Math.LN2;
}

function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  return (p >= 0.1 ? p.toFixed(1) : p.toExponential(1)) + ' %';
}

// A mark is a group of tokens that ends between two characters.
class Marks {
  constructor(parent) {
    this.parent = parent;
    this.decoder = new TextDecoder();
    this.group = [];
  }

  add(token) {
    this.group.push(token);
    const text = this.decoder.decode(bytes(token.token), {stream: true});
    if (!text && token.token) return;
    this.flush(text);
  }

  flush(text) {
    const bits = this.group.reduce((sum, token) => sum + bitsOf(token), 0);
    const mark = element('i', visible(text) || '∎', shade(bits));
    mark.tokens = this.group;
    mark.tabIndex = this.parent.childElementCount ? -1 : 0;
    this.parent.append(mark);
    this.group = [];
  }

  end() {
    if (this.group.length) this.flush(this.decoder.decode() || '�');
  }
}

function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map(each => ({
      token: each.token, logprob: each.logprob,
      top: each.top_logprobs.map(x => [x.token, x.logprob]),
    }));
  }
  return logprobs.tokens.map((token, n) => ({
    token, logprob: logprobs.token_logprobs[n],
    top: Object.entries(logprobs.top_logprobs[n] ?? {})
      .sort((a, b) => b[1] - a[1]).slice(0, TOP),
  }));
}

function describe(token) {
  const tip = $('tip');
  tip.append(element('b', '“' + (visible(token.token) || '∎') + '”'));
  tip.append(element('div',
    percent(token.logprob) + ', ' + bitsOf(token).toFixed(2) + ' bits'));
  for (const [text, logprob] of token.top) {
    const bar = '█'.repeat(Math.round(12 * Math.exp(logprob)));
    const name = visible(text).replaceAll('\n', '') || '∎';
    tip.append(element('div',
      percent(logprob).padStart(9) + '  ' + name.padEnd(12) + ' ' + bar));
  }
}

function show(event) {
  const mark = event.target.closest?.('.made i');
  const tip = $('tip');
  tip.hidden = !mark;
  document.querySelector('[aria-describedby]')
    ?.removeAttribute('aria-describedby');
  if (!mark) return;
  mark.setAttribute('aria-describedby', 'tip');
  tip.replaceChildren();
  mark.tokens.forEach(describe);
  const box = mark.getClientRects()[0];
  const below = box.bottom + 8 + tip.offsetHeight < innerHeight;
  const top = below ? box.bottom + 6 : box.top - tip.offsetHeight - 6;
  tip.style.top = Math.max(top, 4) + 'px';
  tip.style.left =
    Math.max(Math.min(box.left, innerWidth - tip.offsetWidth - 12), 4) + 'px';
}

// Tab goes to one token of a text, and the arrows from there to the others.
function walk(event) {
  const mark = event.target.closest?.('.made i');
  if (event.key === 'Escape') $('tip').hidden = true;
  const next = mark && {
    ArrowRight: mark.nextElementSibling, ArrowLeft: mark.previousElementSibling,
    Home: mark.parentElement.firstElementChild,
    End: mark.parentElement.lastElementChild,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  mark.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// Turns.

function chats() {
  return model.capabilities.includes('chat');
}

function classifies() {
  return !model.capabilities.includes('completions');
}

function size(count) {
  if (count < 2 ** 10) return count + ' B';
  if (count < 2 ** 20) return (count / 2 ** 10).toFixed(1) + ' KiB';
  return (count / 2 ** 20).toFixed(1) + ' MiB';
}

function draw() {
  $('branches').replaceChildren(...branches.map(branch => {
    const button = element('button', branch.name);
    if (branch === current) button.setAttribute('aria-current', 'true');
    button.onclick = () => {
      current = branch;
      draw();
      document.querySelector('[aria-current]').focus();
    };
    return button;
  }));
  const fresh = element('button', '+');
  fresh.title = 'A new conversation';
  fresh.setAttribute('aria-label', fresh.title);
  fresh.onclick = () => fork(0);
  $('branches').append(fresh);
  $('branches').hidden = classifies();
  $('turns').className = chats() ? 'chat' : 'flow';
  $('turns').replaceChildren(...current.turns.map(turn => turn.element));
}

function fork(count) {
  const parent = current.name;
  current = {
    name: String(branches.length + 1) + (count ? ` ← ${parent}.${count}` : ''),
    turns: current.turns.slice(0, count).map(copy),
  };
  branches.push(current);
  draw();
  $('text').focus();
}

function copy(turn) {
  const made = build(turn.given);
  const marks = new Marks(made.made);
  for (const token of turn.tokens) marks.add(token);
  marks.end();
  Object.assign(made, {tokens: turn.tokens, text: turn.text});
  settle(made, turn.state);
  return made;
}

function build(given) {
  const turn = {given, text: '', tokens: [], state: null};
  turn.element = element('div', undefined, 'turn');
  turn.made = element('p', '', 'made');
  turn.after = element('div', undefined, 'after');
  turn.element.append(element('p', given, 'given'), turn.made, turn.after);
  return turn;
}

// Shows the state after a turn, and offers a fork there.
function settle(turn, state) {
  turn.state = state;
  const button = element('button', 'Fork here');
  button.onclick = () => fork(current.turns.indexOf(turn) + 1);
  turn.after.replaceChildren(
    element('span', `${state.tokens} tokens read; the state has `
      + `${size(state.bytes)}`),
    button);
}

// The classes of a text, the most likely one first, as bars.
async function classify(given) {
  const turn = build(given);
  const {data: [row]} = await (await ask('/v1/classify', {input: given})).json();
  const all = Object.entries(row.probabilities).sort((a, b) => b[1] - a[1]);
  for (const [label, p] of all.slice(0, CLASSES)) {
    const bar = element('meter');
    Object.assign(bar, {min: 0, max: 1, value: p});
    bar.setAttribute('aria-label', label);
    const line = element('div', undefined, 'class');
    if (label === row.label) line.classList.add('best');
    line.append(
      element('span', label), bar, element('output', percent(Math.log(p))));
    turn.made.append(line);
  }
  if (all.length > CLASSES) {
    const rest = all.length - CLASSES;
    turn.after.append(element('span', `and ${rest} less likely classes`));
  }
  turn.text = `${row.label}, ${percent(Math.log(row.probabilities[row.label]))}`;
  current.turns.push(turn);
  draw();
  turn.element.scrollIntoView({block: 'end'});
  return turn;
}

function previous() {
  const last = current.turns.at(-1);
  const state = last?.state;
  return state ? {state: state.data ?? state.id} : {};
}

function options() {
  const number = id => $(id).value === '' ? undefined : Number($(id).value);
  return {
    temperature: number('temperature'), top_p: number('top_p'),
    top_k: number('top_k'), max_tokens: number('max_tokens'),
    seed: number('seed'),
  };
}

function form() {
  return model.state_bytes < LARGEST ? 'bytes' : 'id';
}

async function write(given) {
  const before = previous();
  const turn = build(given);
  const marks = new Marks(turn.made);
  const branch = current;
  branch.turns.push(turn);
  draw();
  const shared = {...options(), ...before, stream: true, return_state: form()};
  const path = chats() ? '/v1/chat/completions' : '/v1/completions';
  const body = chats()
    ? {...shared, logprobs: true, top_logprobs: TOP,
      messages: [{role: 'user', content: given}]}
    : {...shared, logprobs: TOP, prompt: given};
  running = new AbortController();
  let state = null;
  try {
    const response = await ask(path, body, running.signal);
    for await (const event of events(response)) {
      for (const choice of event.choices) {
        turn.text += choice.text ?? choice.delta.content ?? '';
        for (const token of tokensOf(choice.logprobs)) {
          turn.tokens.push(token);
          marks.add(token);
        }
      }
      state = event.state ?? state;
      turn.element.scrollIntoView({block: 'end'});
    }
  } catch (error) {
    if (error.name !== 'AbortError') {
      if (!turn.tokens.length) branch.turns.pop();
      throw error;
    }
  } finally {
    marks.end();
    running = null;
  }
  settle(turn, state ?? await read(turn, before));
  draw();
  return turn;
}

// The state of a turn that was stopped: its text is read once more.
async function read(turn, before) {
  const what = chats()
    ? {messages: [{role: 'user', content: turn.given},
      {role: 'assistant', content: turn.text}]}
    : {prompt: turn.given + turn.text};
  const body = {...what, ...before, form: form()};
  return (await ask('/v1/states', body)).json();
}

async function send(event) {
  event.preventDefault();
  const text = $('text').value;
  if (running || !model || (chats() && !text.trim())) return;
  $('error').hidden = true;
  $('go').disabled = true;
  $('stop').hidden = false;
  $('text').value = '';
  $('said').textContent = '';
  try {
    const turn = await (classifies() ? classify(text) : write(text));
    $('said').textContent = turn.text;
  } catch (error) {
    fail(error);
    $('text').value = text;
    draw();
  }
  $('go').disabled = false;
  $('stop').hidden = true;
  // The button that had the focus may be gone.
  if (document.activeElement === document.body) $('text').focus();
  look();
}

// The head of the page.

async function look() {
  if (forecasts()) return watch();
  const status = await (await ask('/v1/status')).json();
  $('load').hidden = !status.slots;
  const slots = $('slots');
  slots.replaceChildren(...Array.from({length: status.slots}, (_, n) =>
    element('i', undefined, n < status.active ? 'used' : '')));
  const words = `${status.active} of ${status.slots} slots`;
  slots.setAttribute('aria-label', words);
  $('status').textContent =
    words + (status.queued ? `, ${status.queued} waiting` : '');
}

async function open(event) {
  event?.preventDefault();
  if ($('key').value) sessionStorage.setItem('key', $('key').value);
  $('error').hidden = true;
  try {
    const listed = await (await ask('/v1/models')).json();
    model = listed.data[0];
    $('entry').hidden = true;
    $('composer').hidden = forecasts();
    $('name').textContent = document.title = model.id;
    if (forecasts()) return await watch();
    $('options').hidden = $('scale').hidden = classifies();
    $('facts').textContent = classifies()
      ? `step ${model.step}; ${model.classes.length} classes`
      : `step ${model.step}; a conversation is ${size(model.state_bytes)}, `
        + 'whatever its length';
    $('go').textContent = classifies() ? 'Classify' : chats() ? 'Say' : 'Write';
    draw();
    await look();
  } catch (error) {
    fail(error);
  }
}

$('scale').append('sure ', ...['c0', 'c2', 'c4', 'c6', 'c8'].map(
  kind => element('i', '\u00a0', kind)), ' surprised');
$('composer').addEventListener('submit', send);
$('entry').addEventListener('submit', open);
$('stop').addEventListener('click', () => running?.abort());
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey
    || (model && chats() && !event.shiftKey))) send(event);
});
for (const each of ['pointerover', 'focusin']) {
  document.addEventListener(each, show);
}
document.addEventListener('keydown', walk);
setInterval(() => {
  if (model && !document.hidden) look().catch(() => {});
}, EVERY);
open();
