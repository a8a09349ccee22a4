// Writes text greedily with exported graphs, in a browser or in Node.
//
//   const model = await open(ort, read);
//   for await (const text of generate(model, tokenizer, 'The gate', 40)) ...
//
// `ort` is the module onnxruntime-web, `read` returns a file of the folder as
// bytes, `tokenizer` is made from tokenizer.json.

export async function open(ort, read) {
  const json = async (name) =>
    JSON.parse(new TextDecoder().decode(await read(name)));
  const externalData = [
    {path: 'weights.bin', data: await read('weights.bin')},
  ];
  const session = async (name) =>
    ort.InferenceSession.create(await read(name), {externalData});
  const model = {ort, interface: await json('interface.json')};
  model.row = await session('row.onnx');
  model.step = await session('step.onnx');
  return model;
}

// The state before a document, of one row.
export function begin({ort, interface: {state}}) {
  const arrays = {float32: Float32Array, int32: Int32Array};
  return Object.fromEntries(
    Object.entries(state).map(([name, {shape, dtype, value}]) => {
      const dims = shape.map((size) => (size === 'B' ? 1 : size));
      const size = dims.reduce((a, b) => a * b, 1);
      const data = new arrays[dtype](size).fill(Number(value));
      return [`state.${name}`, new ort.Tensor(dtype, data, dims)];
    }),
  );
}

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
