// The page of a server that forecasts series: a stream's last readings, and the
// fan of its forecast, drawn again whenever a reading arrives.
//
// What the server says is only ever set as textContent or as an attribute of SVG.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const WIDE = 800;
const HIGH = 320;
const EDGE = {left: 64, right: 12, top: 12, bottom: 28};
const TICKS = 5; // numbers beside the picture, about
const DIGITS = 4; // of a number in words

let shown = null; // the stream that is drawn, as the server describes it
let listed = -1; // how many the server had when they were listed

function forecasts() {
  return model.capabilities.includes('forecast');
}

function path(id) {
  return '/v1/streams/' + encodeURIComponent(id);
}

function digits(x) {
  return x === null ? 'missing' : String(Number(x.toPrecision(DIGITS)));
}

// The intervals of a forecast, the widest first: a level from below and one from
// above, with their numbers.
function intervals(quantiles) {
  const levels = Object.keys(quantiles).sort((a, b) => a - b);
  const pairs = [];
  for (let n = 0; n < Math.floor(levels.length / 2); n++) {
    const [low, high] = [levels[n], levels.at(-1 - n)];
    pairs.push({low, high, lows: quantiles[low], highs: quantiles[high]});
  }
  return pairs;
}

// Round numbers from a low to a high one.
function ticks(low, high) {
  const rough = (high - low) / TICKS;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find(x => x * unit >= rough);
  const made = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) {
    made.push(n * step);
  }
  return made;
}

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  if (text !== undefined) made.textContent = text;
  return made;
}

// What a picture says, for those who don't see it.
function words(stream) {
  const [widest] = intervals(stream.quantiles);
  const next = `the next, ${stream.times[0]}: ${digits(stream.point[0])}`;
  const last = stream.recent.readings.at(-1);
  return `${stream.id}: ${digits(last)} at ${stream.last}; ${next}`
    + (widest ? ` (${digits(widest.lows[0])} to ${digits(widest.highs[0])}, `
      + `levels ${widest.low} to ${widest.high})` : '');
}

// Returns the picture of a stream: its readings, and after them its forecast.
function fan(stream) {
  const {readings} = stream.recent;
  const bands = intervals(stream.quantiles);
  const numbers = [...readings, ...stream.point,
    ...bands.flatMap(band => [...band.lows, ...band.highs])]
    .filter(x => x !== null);
  let [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const count = readings.length + stream.point.length;
  const inner = {
    x: WIDE - EDGE.left - EDGE.right, y: HIGH - EDGE.top - EDGE.bottom};
  const x = n => EDGE.left + inner.x * n / Math.max(count - 1, 1);
  const y = value => EDGE.top + inner.y * (high - value) / (high - low);
  const at = (n, value) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`;
  const line = (values, first) => values.reduce((made, value, n) => {
    const known = value !== null;
    const move = !known || n === 0 || values[n - 1] === null;
    return known ? made + (move ? 'M' : 'L') + at(first + n, value) : made;
  }, '');

  const picture = node('svg', {
    viewBox: `0 0 ${WIDE} ${HIGH}`, role: 'img', 'aria-label': words(stream)});
  for (const value of ticks(low, high)) {
    picture.append(
      node('path', {class: 'grid', d: `M${at(0, value)}H${WIDE - EDGE.right}`}),
      node('text', {x: EDGE.left - 8, y: y(value) + 4, class: 'number'},
        digits(value)));
  }
  const start = readings.length;
  for (const {low: from, high: to, lows, highs} of bands) {
    const above = highs.map((value, n) => at(start + n, value));
    const below = lows.map((value, n) => at(start + n, value)).reverse();
    const band = node('polygon', {
      class: 'band', points: [...above, ...below].join(' ')});
    band.append(node('title', {}, `levels ${from} to ${to}`));
    picture.append(band);
  }
  picture.append(
    node('path', {class: 'median', d: line(stream.point, start)}),
    node('path', {class: 'readings', d: line(readings, 0)}));
  readings.forEach((value, n) => {
    if (value === null) return;
    const point = node('circle', {
      class: 'reading', cx: x(n).toFixed(1), cy: y(value).toFixed(1), r: 2});
    const time = stream.recent.times[n];
    point.append(node('title', {}, `${time}: ${digits(value)}`));
    picture.append(point);
  });
  const foot = HIGH - 8;
  picture.append(
    node('text', {x: EDGE.left, y: foot, class: 'first'},
      stream.recent.times[0]),
    node('text', {x: WIDE - EDGE.right, y: foot, class: 'last'},
      stream.times.at(-1)));
  return picture;
}

// The forecast in numbers.
function numbersOf(stream) {
  const levels = Object.keys(stream.quantiles).sort((a, b) => a - b);
  const row = (name, cells) => {
    const made = element('tr');
    made.append(...cells.map(cell => element(name, cell)));
    return made;
  };
  const table = element('table');
  table.append(row('th', ['time', ...levels]));
  stream.times.forEach((time, n) => table.append(row('td', [
    time, ...levels.map(level => digits(stream.quantiles[level][n]))])));
  const details = element('details');
  details.append(element('summary', 'Numbers'), table);
  return details;
}

// A stream of one target for each that it has.
function byTarget(stream) {
  if (!stream.targets) return [stream];
  return Object.entries(stream.targets).map(([target, numbers], n) => ({
    ...stream, ...numbers, id: `${stream.id}, ${target}`,
    recent: {
      ...stream.recent, readings: stream.recent.readings.map(row => row[n])},
  }));
}

function summaries() {
  return [...$('turns').querySelectorAll('summary')];
}

function drawStream(stream) {
  if (!stream.times) {
    say(`${stream.id} has read up to ${stream.last}. What is known of later times `
      + 'ends there, and so does its forecast.');
    return;
  }
  const open = $('turns').querySelector('details')?.open ?? false;
  const chosen = summaries().indexOf(document.activeElement);
  $('turns').replaceChildren(...byTarget(stream).flatMap(own => {
    const figure = element('figure');
    figure.append(fan(own), element('figcaption', words(own)));
    const numbers = numbersOf(own);
    numbers.open = open;
    return [figure, numbers];
  }));
  summaries()[chosen]?.focus();
  shown = stream;
}

function say(words) {
  shown = null;
  $('turns').replaceChildren(element('p', words));
}

// Lists the streams; the one that was chosen stays chosen.
async function list() {
  const {data} = await (await ask('/v1/streams')).json();
  const chosen = $('stream');
  const before = chosen.value;
  chosen.replaceChildren(...data.map(each => {
    const option = element('option', each.id);
    option.value = each.id;
    return option;
  }));
  if (data.some(each => each.id === before)) chosen.value = before;
  $('observe').hidden = !data.length;
  $('facts').textContent = `step ${model.step}; `
    + (data.length === 1 ? '1 stream' : `${data.length} streams`);
}

// Looks at the chosen stream, and draws it if it has read.
async function watch() {
  const {streams} = await (await ask('/v1/status')).json();
  if (streams !== listed || !shown) await list();
  listed = streams;
  const id = $('stream').value;
  if (!id) {
    say('There is no stream yet: PUT /v1/streams/ID with a history begins one.');
    return;
  }
  try {
    const stream = await (await ask(path(id))).json();
    if (shown?.id !== id || shown.count !== stream.count) drawStream(stream);
  } catch (error) {
    if (error instanceof WantsKey) throw error;
    say(error.message); // it was removed, or is of other parameters
  }
}

// Sends the reading that was typed, or those of several targets, with commas; an
// empty field is a missing one.
async function observe(event) {
  event.preventDefault();
  $('error').hidden = true;
  const field = $('reading');
  const each = field.value.split(',').map(x => x.trim() === '' ? null : Number(x));
  const reading = each.length > 1 ? each : each[0];
  try {
    if (each.some(x => x !== null && !Number.isFinite(x))) {
      throw new Error(`${field.value} is not a number`);
    }
    await ask(path($('stream').value), {reading});
    field.value = '';
    await watch();
  } catch (error) {
    fail(error);
  }
}

$('observe').addEventListener('submit', observe);
$('stream').addEventListener('change', () => watch().catch(fail));
