//! Hopper's matrix products, and copies counted by barriers: correct ones against their definition, and
//! one planted mistake each.

use ptx_emu::{Device, Error, Fault, Launch, Module};

const THREADS: u32 = 128;
const COLUMNS: usize = 16;

fn left(r: usize, k: usize) -> u8 {
    ((r * 37 + k * 11 + 129) % 256) as u8
}

fn right(c: usize, k: usize) -> u8 {
    ((c * 53 + k * 7 + 200) % 256) as u8
}

/// The layouts of rows of 32 bytes in shared memory, from the manual's pictures.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// Eight rows of 16 bytes are 128 bytes together: halves 128 bytes, groups of rows 256 bytes apart.
    Plain,
    /// Rows `pitch` bytes apart, 16-byte units of it exchanged.
    Swizzled { pitch: usize, mode: u64 },
}

const LAYOUTS: [Layout; 4] = [
    Layout::Plain,
    Layout::Swizzled { pitch: 128, mode: 1 },
    Layout::Swizzled { pitch: 64, mode: 2 },
    Layout::Swizzled { pitch: 32, mode: 3 },
];

impl Layout {
    fn place(self, row: usize, k: usize) -> usize {
        match self {
            Layout::Plain => row / 8 * 256 + k / 16 * 128 + row % 8 * 16 + k % 16,
            Layout::Swizzled { pitch, .. } => {
                // Unit u of a row is at the place u XOR the row's number within the pattern. The pattern
                // repeats after 8, 4 or 2 units; a 128-byte line holds one, two or four rows.
                let (units, lines) = (pitch / 16, 128 / pitch);
                let unit = (k / 16) ^ (row / lines % units);
                row * pitch + unit * 16 + k % 16
            }
        }
    }

    /// The descriptor of rows from `start` on.
    fn descriptor(self, start: usize) -> u64 {
        let field = |bytes: usize, at: u32| (bytes as u64 >> 4) << at;
        match self {
            Layout::Plain => field(start, 0) | field(128, 16) | field(256, 32),
            Layout::Swizzled { pitch, mode } => field(start, 0) | field(8 * pitch, 32) | mode << 62,
        }
    }

    fn image(self, rows: usize, value: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        let mut bytes = vec![0; rows * 128];
        for r in 0..rows {
            for k in 0..32 {
                bytes[self.place(r, k)] = value(r, k);
            }
        }
        bytes
    }
}

/// A kernel with pointers to the left and right image and to the result.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out) {{
         .reg .b32 %r<20>; .reg .b32 %d<8>; .reg .b64 %rd<20>; .reg .pred %p<4>;
         .shared .align 1024 .b8 lhs[8192]; .shared .align 1024 .b8 rhs[2048];
         .shared .align 8 .b8 bar[8];
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [out];
         mov.u32 %r1, %tid.x;
         {body}
         mul.wide.u32 %rd9, %r1, 32; add.s64 %rd9, %rd3, %rd9;
         st.global.v4.u32 [%rd9], {{%d0, %d1, %d2, %d3}};
         st.global.v4.u32 [%rd9+16], {{%d4, %d5, %d6, %d7}};
         ret; }}"
    )
}

/// Every thread copies its share of both images, sixteen bytes at a time.
const FILL: &str = "
    mov.u32 %r2, %r1;
    $more:
    shl.b32 %r3, %r2, 4; cvt.u64.u32 %rd4, %r3;
    add.s64 %rd5, %rd1, %rd4; mov.u32 %r4, lhs; add.s32 %r4, %r4, %r3;
    ld.global.v4.u32 {%r8, %r9, %r10, %r11}, [%rd5]; st.shared.v4.u32 [%r4], {%r8, %r9, %r10, %r11};
    setp.ge.u32 %p1, %r2, 128; @%p1 bra $skip;
    add.s64 %rd5, %rd2, %rd4; mov.u32 %r4, rhs; add.s32 %r4, %r4, %r3;
    ld.global.v4.u32 {%r8, %r9, %r10, %r11}, [%rd5]; st.shared.v4.u32 [%r4], {%r8, %r9, %r10, %r11};
    $skip:
    add.s32 %r2, %r2, 128; setp.lt.u32 %p1, %r2, 512; @%p1 bra $more;
    fence.proxy.async.shared::cta; bar.sync 0;";

const SUMS: &str = "
    mov.u32 %d0, 1; mov.u32 %d1, 2; mov.u32 %d2, 3; mov.u32 %d3, 4;
    mov.u32 %d4, 5; mov.u32 %d5, 6; mov.u32 %d6, 7; mov.u32 %d7, 4294967295;";

fn issue(types: &str, a: &str, b: u64, accumulate: bool) -> String {
    format!(
        "setp.eq.b32 %p2, {}, 1; mov.u64 %rd7, {b};
         wgmma.mma_async.sync.aligned.m64n16k32.s32.{types}
         {{%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7}}, {a}, %rd7, %p2;",
        u8::from(accumulate)
    )
}

const FENCE: &str = "wgmma.fence.sync.aligned;";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";

/// Runs one block; the result as words of each thread.
fn run(text: &str, layout: Layout, seed: u64) -> Result<Vec<u32>, Error> {
    let module = Module::parse(text)?;
    let kernel = module.kernel("k").expect("kernel k");
    let mut device = Device::new(1 << 20, seed);
    let images = [layout.image(64, left), layout.image(COLUMNS, right), vec![0; 128 * 32]];
    let mut params = Vec::new();
    let mut out = 0;
    for image in &images {
        out = device.allocate(image.len()).expect("room");
        device.bytes(out, image.len())?.copy_from_slice(image);
        params.extend(out.to_le_bytes());
    }
    let launch = Launch { grid: [1; 3], block: [THREADS, 1, 1], shared: 0, params: &params };
    device.launch(&kernel, &launch)?;
    let bytes = device.bytes(out, 128 * 32)?;
    Ok(bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes"))).collect())
}

fn fault(text: &str) -> Fault {
    match run(text, Layout::Plain, 3) {
        Err(Error::Kernel { fault, .. }) => fault,
        other => panic!("a fault was expected, not {other:?}"),
    }
}

/// The value of accumulator `i` in thread `t` after `times` products.
fn expected(t: usize, i: usize, (a, b): (&str, &str), times: i32, start: bool) -> u32 {
    let number = |v: u8, ty: &str| if ty == "s8" { i32::from(v as i8) } else { i32::from(v) };
    let row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2);
    let col = i / 4 * 8 + t % 4 * 2 + i % 2;
    let sum: i32 = (0..32).map(|k| number(left(row, k), a) * number(right(col, k), b)).sum();
    let start = if start { [1, 2, 3, 4, 5, 6, 7, -1][i] } else { 0 };
    (times * sum + start) as u32
}

fn check(out: &[u32], types: (&str, &str), times: i32, start: bool, what: &str) {
    for t in 0..THREADS as usize {
        for i in 0..8 {
            let right = expected(t, i, types, times, start);
            assert_eq!(out[t * 8 + i], right, "{what}: thread {t}, accumulator {i}");
        }
    }
}

#[test]
fn operands_in_shared_memory_are_found_in_every_layout() {
    for (n, layout) in LAYOUTS.into_iter().enumerate() {
        // `lhs` is at 0, `rhs` after it.
        let (a, b) = (layout.descriptor(0), layout.descriptor(8192));
        let product = format!("mov.u64 %rd6, {a}; {}", issue("u8.u8", "%rd6", b, true));
        let text = kernel(&format!("{FILL}{SUMS}{FENCE}{product}{COMMIT}{WAIT}"));
        let out = run(&text, layout, n as u64).expect("no fault");
        check(&out, ("u8", "u8"), 1, true, &format!("layout {n}"));
    }
}

#[test]
fn products_follow_one_another_in_the_order_of_their_issue() {
    let (a, b) = (Layout::Plain.descriptor(0), Layout::Plain.descriptor(8192));
    let set = format!("mov.u64 %rd6, {a};");
    let (fresh, more) = (issue("s8.u8", "%rd6", b, false), issue("s8.u8", "%rd6", b, true));
    for wait in [WAIT, "wgmma.wait_group.sync.aligned 1; wgmma.wait_group.sync.aligned 0;"] {
        let body = format!("{FILL}{SUMS}{set}{FENCE}{fresh}{more}{COMMIT}{more}{COMMIT}{wait}");
        let out = run(&kernel(&body), Layout::Plain, 9).expect("no fault");
        check(&out, ("s8", "u8"), 3, false, wait);
    }
}

#[test]
fn the_left_operand_may_come_from_registers() {
    // Thread t holds bytes 4 (t % 4).. of rows t / 4 and t / 4 + 8 of its warp, and 16 columns further.
    let load = "
        and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5; shl.b32 %r3, %r3, 4; shr.u32 %r4, %r2, 2;
        add.s32 %r3, %r3, %r4; and.b32 %r5, %r2, 3; shl.b32 %r5, %r5, 2;
        shl.b32 %r6, %r3, 5; add.s32 %r6, %r6, %r5; mov.u32 %r7, lhs; add.s32 %r6, %r6, %r7;
        ld.shared.u32 %r12, [%r6]; ld.shared.u32 %r13, [%r6+256];
        ld.shared.u32 %r14, [%r6+16]; ld.shared.u32 %r15, [%r6+272];";
    let rows = |r: usize, k: usize| r * 32 + k;
    let b = Layout::Plain.descriptor(8192);
    let product = issue("u8.s8", "{%r12,%r13,%r14,%r15}", b, true);
    let text = kernel(&format!("{FILL}{load}{SUMS}{FENCE}{product}{COMMIT}{WAIT}"));
    // The left image row by row, the right one in its layout.
    let module = Module::parse(&text).expect("parses");
    let mut device = Device::new(1 << 20, 2);
    let mut lhs = vec![0; 8192];
    (0..64).for_each(|r| (0..32).for_each(|k| lhs[rows(r, k)] = left(r, k)));
    let images = [lhs, Layout::Plain.image(COLUMNS, right), vec![0; 128 * 32]];
    let (mut params, mut out) = (Vec::new(), 0);
    for image in &images {
        out = device.allocate(image.len()).expect("room");
        device.bytes(out, image.len()).expect("allocated").copy_from_slice(image);
        params.extend(out.to_le_bytes());
    }
    let launch = Launch { grid: [1; 3], block: [THREADS, 1, 1], shared: 0, params: &params };
    device.launch(&module.kernel("k").expect("kernel k"), &launch).expect("no fault");
    let bytes = device.bytes(out, 128 * 32).expect("allocated");
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes"))).collect();
    check(&words, ("u8", "s8"), 1, true, "registers");
}

/// A whole product with `before` in front of the instruction, and `after` after it.
fn planted(before: &str, after: &str) -> String {
    let (a, b) = (Layout::Plain.descriptor(0), Layout::Plain.descriptor(8192));
    let product = format!("mov.u64 %rd6, {a}; {}", issue("u8.u8", "%rd6", b, true));
    kernel(&format!("{FILL}{SUMS}{before}{product}{after}"))
}

#[test]
fn a_product_without_a_fence_is_refused() {
    run(&planted(FENCE, &format!("{COMMIT}{WAIT}")), Layout::Plain, 3).expect("no fault");
    assert_eq!(fault(&planted("", &format!("{COMMIT}{WAIT}"))), Fault::MissingFence);
}

#[test]
fn sums_that_were_not_waited_for_are_not_there() {
    for after in
        [String::new(), COMMIT.to_owned(), format!("{COMMIT}wgmma.wait_group.sync.aligned 1;")]
    {
        assert_eq!(fault(&planted(FENCE, &after)), Fault::ProductsInFlight, "{after}");
    }
    let touched = format!("{COMMIT} mov.u32 %d3, 0; {WAIT}");
    assert_eq!(fault(&planted(FENCE, &touched)), Fault::Accumulator);
}

#[test]
fn operands_that_change_before_the_wait_are_a_race() {
    let change =
        "mov.u32 %r4, rhs; shl.b32 %r5, %r1, 2; add.s32 %r4, %r4, %r5; st.shared.u32 [%r4], %r1;";
    let early = fault(&planted(FENCE, &format!("{COMMIT}{change}{WAIT}")));
    assert!(matches!(early, Fault::Race { space: "shared", .. }), "{early}");
    let late = planted(FENCE, &format!("{COMMIT}{WAIT} bar.sync 0; {change}"));
    run(&late, Layout::Plain, 3).expect("no fault");
}

/// Both operands arrive by bulk copies of `bytes` and the rest, counted by a barrier of `count`
/// arrivals.
fn copied(initialised: &str, expect: u32, wait: &str) -> String {
    let (a, b) = (Layout::Plain.descriptor(0), Layout::Plain.descriptor(8192));
    let product = format!("mov.u64 %rd6, {a}; {}", issue("u8.u8", "%rd6", b, true));
    kernel(&format!(
        "mov.u32 %r4, bar; mov.u32 %r5, lhs; mov.u32 %r6, rhs; setp.ne.u32 %p3, %r1, 0;
         @%p3 bra $ready; mbarrier.init.shared::cta.b64 [%r4], 1; fence.proxy.async.shared::cta;
         $ready: {initialised}
         @%p3 bra $issued; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {expect};
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 8192, [%r4];
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd2], 2048, [%r4];
         $issued: {wait} {SUMS}{FENCE}{product}{COMMIT}{WAIT}"
    ))
}

const ARRIVED: &str =
    "$again: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; @!%p1 bra $again;";

#[test]
fn bulk_copies_are_there_once_their_barrier_says_so() {
    for seed in 0..10 {
        let text = copied("bar.sync 0;", 10_240, ARRIVED);
        let out = run(&text, Layout::Plain, seed).expect("no fault");
        check(&out, ("u8", "u8"), 1, true, "copied");
    }
}

#[test]
fn a_barrier_that_is_not_waited_for_or_never_completes_is_caught() {
    assert!(matches!(fault(&copied("bar.sync 0;", 10_240, "")), Fault::InFlight(_)));
    let short = fault(&copied("bar.sync 0;", 8192 + 4096, ARRIVED));
    assert!(matches!(&short, Fault::Barrier(text) if text.contains("never come")), "{short}");
    // Other threads may ask before the barrier is there.
    let mut caught = 0;
    for seed in 0..10 {
        let early = run(&copied("", 10_240, ARRIVED), Layout::Plain, seed);
        caught += usize::from(early.is_err());
    }
    assert!(caught > 0, "an initialisation that nobody waits for is never seen");
}
