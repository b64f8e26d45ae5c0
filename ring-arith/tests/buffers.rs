//! The pool of buffers: what comes back, what is kept, what is shared.

use ring_arith::{BufferPool, EngineTensor, Shape, Tensor};

#[test]
fn dropped_buffers_are_handed_out_again() {
    let pool = BufferPool::default();
    for len in [256, 257, 300, 1000, 1 << 16] {
        let address = pool.take(len).as_ptr();
        let again = pool.take(len);
        assert_eq!(again.as_ptr(), address, "{len}");
        assert_eq!(again.len(), len);
    }
}

#[test]
fn buffers_are_aligned_to_a_cache_line_and_hold_what_was_asked_for() {
    let pool = BufferPool::default();
    let lengths = [0, 1, 7, 8, 255, 256, 319, 320, 321, 511, 512, 513, 12_345];
    let buffers: Vec<_> = lengths.iter().map(|&len| pool.take(len)).collect();
    for (buffer, len) in buffers.iter().zip(lengths) {
        assert_eq!(buffer.len(), len);
        assert_eq!(buffer.as_ptr().addr() % 64, 0);
    }
    assert!(pool.zeroed(3000).iter().all(|&word| word == 0));
}

#[test]
fn the_last_clone_or_slice_of_a_tensor_gives_its_memory_back() {
    let pool = BufferPool::default();
    let mut buffer = pool.take(1000);
    buffer.fill(7);
    let tensor = buffer.into_tensor(Shape::new([10, 100]).unwrap()).unwrap();
    let slice = tensor.slice(0, 3, 4).unwrap();
    let message = tensor.to_bytes();
    drop(tensor);
    drop(message);
    assert_eq!(pool.held(), 0);
    assert_eq!(slice.words(), [7; 100]);
    drop(slice);
    assert!(pool.held() >= 1000);
    assert!(pool.zeroed(1000).iter().all(|&word| word == 0), "old words do not come back");
}

#[test]
fn a_pool_keeps_no_more_than_its_limit() {
    let pool = BufferPool::new(3000);
    let buffers: Vec<_> = (0..5).map(|_| pool.take(1000)).collect();
    drop(buffers);
    assert!((1000..=3000).contains(&pool.held()), "{}", pool.held());
    let none = BufferPool::new(0);
    drop(none.take(5000));
    assert_eq!(none.held(), 0);
}

#[test]
fn tensors_over_bytes_share_what_is_aligned_and_copy_what_is_not() {
    let words: Vec<u64> = (0..9).collect();
    let bytes = Tensor::vector(words).to_bytes();
    let shape = Shape::new([2, 4]).unwrap();
    let shared = Tensor::from_bytes(shape.clone(), bytes.slice(8..)).unwrap();
    assert_eq!(shared.words().as_ptr().cast(), bytes[8..].as_ptr());
    let copied = Tensor::from_bytes(shape.clone(), bytes.slice(4..68)).unwrap();
    let model = |i: usize| u64::from_le_bytes(bytes[4 + 8 * i..12 + 8 * i].try_into().unwrap());
    assert_eq!(copied, Tensor::from_fn(shape.clone(), model));
    assert!(Tensor::from_bytes(shape.clone(), bytes.slice(1..)).is_err());
    assert!(Tensor::new(shape, vec![0; 7]).is_err());
    assert_eq!(
        Tensor::from_bytes(Shape::new([0, 3]).unwrap(), bytes.slice(1..1)).unwrap().len(),
        0
    );
}

#[test]
fn debug_output_shows_no_words() {
    let pool = BufferPool::default();
    let mut buffer = pool.take(300);
    buffer.fill(0x1234_5678);
    assert_eq!(format!("{buffer:?}"), "Buffer(300 words)");
    let tensor = buffer.into_tensor(Shape::new([300]).unwrap()).unwrap();
    assert_eq!(format!("{tensor:?}"), "Tensor([300])");
}

#[test]
fn a_trimmed_pool_frees_its_largest_buffers_first() {
    let pool = BufferPool::new(1 << 20);
    drop((pool.take(1000), pool.take(100_000), pool.take(10_000)));
    let all = pool.held();
    pool.trim(all);
    assert_eq!(pool.held(), all);
    pool.trim(20_000);
    assert!((11_000..20_000).contains(&pool.held()), "{} words are held", pool.held());
    pool.trim(0);
    assert_eq!(pool.held(), 0);
}
