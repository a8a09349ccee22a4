// Opens exported graphs, in a browser or in Node.
//
//   const model = await open(ort, read);
//
// `ort` is the module onnxruntime-web, `read` returns a file of the folder as
// bytes. The model has the sessions `row` and, with a state, `step`.

export async function open(ort, read) {
  const json = async (name) =>
    JSON.parse(new TextDecoder().decode(await read(name)));
  const externalData = [
    {path: 'weights.bin', data: await read('weights.bin')},
  ];
  const session = async (name) =>
    ort.InferenceSession.create(await read(name), {externalData});
  const model = {ort, interface: await json('interface.json')};
  for (const name of Object.keys(model.interface.inputs)) {
    model[name] = await session(`${name}.onnx`);
  }
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
