// Writes text greedily with exported graphs, in a browser or in Node.
//
//   const model = await open(ort, read);  // of graphs.js
//   for await (const text of generate(model, tokenizer, 'The gate', 40)) ...
//
// `tokenizer` is made from tokenizer.json.

import {begin} from './graphs.js';

// Yields the prompt with more and more of what follows.
export async function* generate(model, tokenizer, prompt, count) {
  const {boundary, vocabulary} = model.interface;
  const written = [...tokenizer.encode(prompt, {add_special_tokens: false}).ids];
  let state = begin(model);
  let [graph, tokens] = [model.row, [boundary, ...written]];
  for (let n = 0; n < count; n++) {
    const ids = Int32Array.from(tokens);
    const results = await graph.run({
      tokens_BxL: new model.ort.Tensor('int32', ids, [1, ids.length]),
      ...state,
    });
    state = Object.fromEntries(
      Object.keys(state).map((name) => [name, results[`next_${name}`]]),
    );
    const last = results.logits_BxLxV.data.slice(-vocabulary);
    [graph, tokens] = [model.step, [last.indexOf(Math.max(...last))]];
    if (tokens[0] === boundary) break;
    written.push(tokens[0]);
    yield tokenizer.decode(written);
  }
}

// What the page shows: the text while it grows.
export const shown = (model, tokenizer, prompt) =>
  generate(model, tokenizer, prompt, 100);
