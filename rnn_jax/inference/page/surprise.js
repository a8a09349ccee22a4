'use strict';
const tip = document.getElementById('tip');

function line(text, strong) {
  const element = document.createElement(strong ? 'b' : 'div');
  element.textContent = text.replaceAll('\n', '');
  tip.append(element);
}

function probability(logprob) {
  const p = 100 * Math.exp(logprob);
  return (p >= 0.1 ? p.toFixed(1) : p.toExponential(1)) + ' %';
}

function describe(data, n) {
  const logprob = data.logprobs[n];
  line('\u201c' + data.names[data.ids[n]] + '\u201d', true);
  if (logprob === null) return line('not a number');
  line((-logprob / Math.LN2).toFixed(2) + ' bits, ' + probability(logprob));
  line('log-probability ' + logprob.toFixed(3) + ', rank ' + data.ranks[n]);
  if (data.width) line('most likely here:');
  for (let k = n * data.width; k < (n + 1) * data.width; k++) {
    const blocks = Math.round(12 * Math.exp(data.top_logprobs[k]));
    const bar = '\u2588'.repeat(blocks);
    line(probability(data.top_logprobs[k]).padStart(9) + '  '
      + data.names[data.top[k]].padEnd(12) + ' ' + bar);
  }
}

function place(mark) {
  const box = mark.getClientRects()[0];
  const below = box.bottom + 8 + tip.offsetHeight < innerHeight;
  const top = below ? box.bottom + 6 : box.top - tip.offsetHeight - 6;
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 12);
  tip.style.top = Math.max(top, 4) + 'px';
  tip.style.left = Math.max(left, 4) + 'px';
}

for (const article of document.querySelectorAll('article')) {
  const text = article.querySelector('.text');
  let data = null;
  text.addEventListener('pointerover', event => {
    const mark = event.target.closest('i');
    tip.hidden = !mark;
    if (!mark) return;
    data ??= JSON.parse(article.querySelector('script').textContent);
    let first = +mark.parentNode.dataset.at;
    for (let m = mark.previousElementSibling; m; m = m.previousElementSibling)
      first += +(m.dataset.n || 1);
    tip.replaceChildren();
    for (let n = 0; n < +(mark.dataset.n || 1); n++) describe(data, first + n);
    place(mark);
  });
  text.addEventListener('pointerleave', () => { tip.hidden = true; });
}
