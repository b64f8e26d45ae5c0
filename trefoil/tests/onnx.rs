//! Small ONNX files.

/// A field of a protocol buffer with a number.
pub fn number(field: u64, value: u64) -> Vec<u8> {
    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }
    [varint(field << 3), varint(value)].concat()
}

/// A field of a protocol buffer with bytes.
pub fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    let mut key = number(field, value.len() as u64);
    key[0] |= 2;
    [key, value.to_vec()].concat()
}

/// An ONNX file with these nodes and tensors; inputs and outputs have these dimensions, 0 for any number of examples.
pub fn onnx(
    nodes: &[Vec<u8>],
    tensors: &[Vec<u8>],
    [inputs, outputs]: [&[(&str, &[u64])]; 2],
) -> Vec<u8> {
    let value = |(name, dims): &(&str, &[u64])| {
        let dim = |&dim: &u64| match dim {
            0 => bytes(1, &bytes(2, b"N")),
            dim => bytes(1, &number(1, dim)),
        };
        let dims: Vec<u8> = dims.iter().flat_map(dim).collect();
        let tensor = [number(1, 1), bytes(2, &dims)].concat();
        [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
    };
    let all = |field: u64, parts: &[Vec<u8>]| -> Vec<u8> {
        parts.iter().flat_map(|part| bytes(field, part)).collect()
    };
    let values = |values: &[_]| values.iter().map(value).collect::<Vec<_>>();
    let graph = [
        all(1, nodes),
        bytes(2, b"graph"),
        all(5, tensors),
        all(11, &values(inputs)),
        all(12, &values(outputs)),
    ];
    [number(1, 8), bytes(7, &graph.concat()), bytes(8, &number(2, 17))].concat()
}

/// A node with its inputs, its output and, as a protocol buffer, its attributes.
pub fn node(kind: &str, inputs: &[&str], output: &str, attributes: &[u8]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| bytes(1, name.as_bytes())).collect();
    let fields = [inputs, bytes(2, output.as_bytes()), bytes(4, kind.as_bytes())].concat();
    [fields, attributes.to_vec()].concat()
}

/// An ONNX file of `y = x W` for `x` of 64 numbers: `W` claims these dimensions, and has `count`
/// numbers.
pub fn matmul(dims: &[u64], count: usize) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| number(1, dim)).collect();
    let numbers = vec![0; 4 * count];
    let weight = [dims, number(2, 1), bytes(8, b"w"), bytes(9, &numbers)].concat();
    let product = node("MatMul", &["x", "w"], "y", &[]);
    onnx(&[product], &[weight], [&[("x", &[1, 64])], &[("y", &[1, 1])]])
}

/// An ONNX file of `y = x W`, with `inputs` numbers in and `outputs` out, all weights 0.
pub fn linear(inputs: u64, outputs: u64) -> Vec<u8> {
    let dims = [number(1, inputs), number(1, outputs)].concat();
    let numbers = vec![0; 4 * (inputs * outputs) as usize];
    let weight = [dims, number(2, 1), bytes(8, b"w"), bytes(9, &numbers)].concat();
    let product = node("MatMul", &["x", "w"], "y", &[]);
    onnx(&[product], &[weight], [&[("x", &[0, inputs])], &[("y", &[0, outputs])]])
}
