// The class of a text by an exported graph, in a browser or in Node.
//
//   const model = await open(ort, read);  // of graphs.js
//   for (const {name, probability} of await classify(model, tokenizer, text))
//
// `tokenizer` is made from tokenizer.json.

import {begin} from './graphs.js';

// Returns the classes and their probabilities, the likeliest first.
export async function classify(model, tokenizer, text) {
  const {boundary, classes, longest} = model.interface;
  const {ids} = tokenizer.encode(text, {add_special_tokens: false});
  const framed = [boundary, ...ids.slice(0, longest), boundary];
  const {probabilities_BxC} = await model.row.run({
    tokens_BxL: new model.ort.Tensor(
      'int32', Int32Array.from(framed), [1, framed.length]),
    ...begin(model),
  });
  return classes
    .map((name, n) => ({name, probability: probabilities_BxC.data[n]}))
    .sort((a, b) => b.probability - a.probability);
}

// What the page shows: a line for each class.
export async function* shown(model, tokenizer, text) {
  const found = await classify(model, tokenizer, text);
  yield found
    .map(({name, probability}) => `${probability.toFixed(4)}  ${name}`)
    .join('\n');
}
