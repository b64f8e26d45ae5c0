//! Small kernels with known results, and kernels with one planted mistake each.

use ptx_emu::{Device, Error, Fault, Launch, Module};

const HEAD: &str = ".version 9.0\n.target sm_80\n.address_size 64\n";

/// A kernel `k` with pointers `k_param_0..` in `%rd1..` and the thread number in `%r1`.
fn kernel(pointers: usize, declarations: &str, body: &str) -> String {
    let params: Vec<_> = (0..pointers).map(|i| format!(".param .u64 k_param_{i}")).collect();
    let loads: String =
        (0..pointers).map(|i| format!("ld.param.u64 %rd{}, [k_param_{i}];\n", i + 1)).collect();
    format!(
        "{HEAD}.visible .entry k({}) {{ .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred %p<8>; \
         {declarations}\n{loads}\nmov.u32 %r1, %tid.x;\n{body}\nret;\n}}",
        params.join(", ")
    )
}

struct Run {
    device: Device,
    pointers: Vec<u64>,
}

/// Runs `k` with one block of `threads` on the given buffers of 32-bit words.
fn run(text: &str, threads: u32, buffers: &[&[u32]], seed: u64) -> Result<Run, Error> {
    let module = Module::parse(text)?;
    let kernel = module.kernel("k").expect("kernel k");
    let mut device = Device::new(1 << 20, seed);
    device.limit_steps(1_000_000);
    let mut params = Vec::new();
    let mut pointers = Vec::new();
    for words in buffers {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let at = device.allocate(bytes.len()).expect("room");
        device.bytes(at, bytes.len())?.copy_from_slice(&bytes);
        params.extend(at.to_le_bytes());
        pointers.push(at);
    }
    let launch = Launch { grid: [1; 3], block: [threads, 1, 1], shared: 0, params: &params };
    device.launch(&kernel, &launch)?;
    Ok(Run { device, pointers })
}

impl Run {
    fn words(&mut self, buffer: usize, count: usize) -> Vec<u32> {
        let bytes = self.device.bytes(self.pointers[buffer], count * 4).expect("allocated");
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
    }
}

fn fault(text: &str, threads: u32, buffers: &[&[u32]]) -> Fault {
    match run(text, threads, buffers, 1).map(|_| ()) {
        Err(Error::Kernel { fault, .. }) => fault,
        other => panic!("a fault was expected, not {other:?}"),
    }
}

/// Each thread stores its number, meets the others (or not), and reads its neighbour's.
fn neighbours(meeting: &str) -> String {
    kernel(
        1,
        ".shared .align 4 .b8 buf[256];",
        &format!(
            "mov.u32 %r2, buf; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1;
             {meeting}
             add.s32 %r5, %r1, 1; and.b32 %r5, %r5, 63; shl.b32 %r5, %r5, 2; add.s32 %r5, %r2, %r5;
             ld.shared.u32 %r6, [%r5];
             cvt.u64.u32 %rd2, %r3; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r6;"
        ),
    )
}

#[test]
fn a_barrier_orders_neighbours_whatever_the_order_of_threads() {
    for seed in 0..20 {
        let mut done = run(&neighbours("bar.sync 0;"), 64, &[&[0; 64]], seed).expect("no fault");
        let expected: Vec<u32> = (0..64).map(|i| (i + 1) % 64).collect();
        assert_eq!(done.words(0, 64), expected);
    }
}

#[test]
fn a_missing_barrier_is_a_race_or_an_unwritten_read() {
    for seed in 0..20 {
        let outcome = run(&neighbours(""), 64, &[&[0; 64]], seed).map(|_| ());
        let Err(Error::Kernel { fault, place }) = outcome else {
            panic!("not caught: {outcome:?}")
        };
        assert!(matches!(fault, Fault::Race { .. } | Fault::Uninitialised(_)), "{fault}");
        assert_eq!(place.kernel, "k");
    }
}

#[test]
fn a_warp_barrier_does_not_order_two_warps() {
    let text = neighbours("bar.warp.sync 0xffffffff;");
    assert!(matches!(fault(&text, 64, &[&[0; 64]]), Fault::Race { .. } | Fault::Uninitialised(_)));
}

/// Copies 16 bytes asynchronously and stores the first word of them.
fn copy(wait: &str) -> String {
    kernel(
        2,
        ".shared .align 16 .b8 buf[512];",
        &format!(
            "shl.b32 %r2, %r1, 4; mov.u32 %r3, buf; add.s32 %r3, %r3, %r2; cvt.u64.u32 %rd3, %r2;
             add.s64 %rd4, %rd1, %rd3; cp.async.cg.shared.global [%r3], [%rd4], 16;
             cp.async.commit_group; {wait}
             ld.shared.u32 %r4, [%r3]; shl.b32 %r5, %r1, 2; cvt.u64.u32 %rd5, %r5;
             add.s64 %rd6, %rd2, %rd5; st.global.u32 [%rd6], %r4;"
        ),
    )
}

#[test]
fn an_asynchronous_copy_needs_its_wait() {
    let input: Vec<u32> = (0..128).collect();
    let mut done =
        run(&copy("cp.async.wait_group 0;"), 32, &[&input, &[0; 32]], 3).expect("no fault");
    assert_eq!(done.words(1, 32), (0..32).map(|i| 4 * i).collect::<Vec<_>>());
    for wait in ["", "cp.async.wait_group 1;"] {
        assert!(matches!(fault(&copy(wait), 32, &[&input, &[0; 32]]), Fault::InFlight(_)));
    }
}

#[test]
fn stray_and_misaligned_accesses_are_caught() {
    let load = |offset: &str| {
        kernel(
            1,
            "",
            &format!(
                "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r2, [%rd3+{offset}];"
            ),
        )
    };
    run(&load("0"), 32, &[&[0; 32]], 0).expect("no fault");
    let outside = fault(&load("4"), 32, &[&[0; 32]]);
    assert!(matches!(outside, Fault::OutOfBounds { space: "global", bytes: 4, .. }), "{outside}");
    assert!(matches!(fault(&load("2"), 32, &[&[0; 32]]), Fault::Misaligned { .. }));
    let shared = kernel(0, ".shared .align 4 .b8 buf[64];", "st.shared.u32 [buf+64], %r1;");
    assert!(matches!(fault(&shared, 1, &[]), Fault::OutOfBounds { space: "shared", .. }));
}

#[test]
fn a_barrier_that_some_threads_skip_is_reported() {
    let text = kernel(0, "", "setp.lt.u32 %p1, %r1, 40; @%p1 bra $L1; bar.sync 0;\n$L1:");
    assert!(matches!(fault(&text, 64, &[]), Fault::Divergence(_)));
    let endless = kernel(0, "", "$L1:\nbra $L1;");
    assert!(matches!(fault(&endless, 1, &[]), Fault::Endless(_)));
}

#[test]
fn blocks_that_write_one_word_race_and_atomics_do_not() {
    let module = |what: &str| kernel(1, "", &format!("mov.u32 %r2, %ctaid.x; {what}"));
    let launch = |text: &str| {
        let module = Module::parse(text).expect("parses");
        let mut device = Device::new(1 << 12, 7);
        let at = device.allocate(4).expect("room");
        device.bytes(at, 4).expect("allocated").fill(0);
        let params = at.to_le_bytes();
        let launch = Launch { grid: [5, 1, 1], block: [1; 3], shared: 0, params: &params };
        let kernel = module.kernel("k").expect("kernel k");
        device.launch(&kernel, &launch).map(|()| device.bytes(at, 4).expect("allocated")[0])
    };
    assert_eq!(launch(&module("red.global.add.u32 [%rd1], %r2;")), Ok(10));
    let race = launch(&module("st.global.u32 [%rd1], %r2;"));
    assert!(matches!(race, Err(Error::Kernel { fault: Fault::Race { space: "global", .. }, .. })));
}

#[test]
fn the_integer_matrix_product_matches_its_definition() {
    for (lhs, rhs) in [("u8", "u8"), ("s8", "s8"), ("u8", "s8")] {
        let loads: String = (0..4)
            .map(|i| format!("ld.global.u32 %r{}, [%rd5+{}];\n", 10 + i, 128 * i))
            .chain((0..2).map(|i| format!("ld.global.u32 %r{}, [%rd6+{}];\n", 20 + i, 128 * i)))
            .collect();
        let stores: String =
            (0..4).map(|i| format!("st.global.u32 [%rd7+{}], %r{};\n", 128 * i, 30 + i)).collect();
        let text = kernel(
            3,
            "",
            &format!(
                "mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4;
                 add.s64 %rd7, %rd3, %rd4; {loads}
                 mov.u32 %r30, 5; mov.u32 %r31, 6; mov.u32 %r32, 7; mov.u32 %r33, 4294967295;
                 mma.sync.aligned.m16n8k32.row.col.s32.{lhs}.{rhs}.s32 {{%r30,%r31,%r32,%r33}},
                 {{%r10,%r11,%r12,%r13}},{{%r20,%r21}},{{%r30,%r31,%r32,%r33}}; {stores}"
            ),
        );
        // Fragments: element (row, k) of the left matrix, (k, column) of the right.
        let left = |r: usize, k: usize| ((r * 37 + k * 11 + 129) % 256) as u8;
        let right = |k: usize, c: usize| ((c * 53 + k * 7 + 200) % 256) as u8;
        let pack = |f: &dyn Fn(usize) -> u8| u32::from_le_bytes([f(0), f(1), f(2), f(3)]);
        let (mut a, mut b) = (vec![0; 128], vec![0; 64]);
        for lane in 0..32 {
            for i in 0..4 {
                let (r, k) = (lane / 4 + 8 * (i % 2), lane % 4 * 4 + 16 * (i / 2));
                a[32 * i + lane] = pack(&|e| left(r, k + e));
            }
            for i in 0..2 {
                b[32 * i + lane] = pack(&|e| right(lane % 4 * 4 + 16 * i + e, lane / 4));
            }
        }
        let mut done = run(&text, 32, &[&a, &b, &[0; 128]], 0).expect("no fault");
        let out = done.words(2, 128);
        let number = |v: u8, ty: &str| if ty == "s8" { i32::from(v as i8) } else { i32::from(v) };
        for lane in 0..32 {
            for i in 0..4 {
                let (r, c) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
                let sum: i32 =
                    (0..32).map(|k| number(left(r, k), lhs) * number(right(k, c), rhs)).sum();
                let start = [5, 6, 7, -1][i];
                assert_eq!(
                    out[32 * i + lane],
                    (sum + start) as u32,
                    "{lhs} {rhs} lane {lane} sum {i}"
                );
            }
        }
    }
}

#[test]
fn shuffles_and_votes_follow_the_manual() {
    let text = kernel(
        1,
        "",
        "shfl.sync.bfly.b32 %r2, %r1, 3, 31, -1; shfl.sync.down.b32 %r3|%p1, %r1, 8, 31, -1;
         shfl.sync.idx.b32 %r4, %r1, 5, 31, -1; shfl.sync.up.b32 %r5, %r1, 2, 0, -1;
         setp.lt.u32 %p2, %r1, 4; vote.sync.ballot.b32 %r6, %p2, -1; selp.u32 %r7, 1, 0, %p1;
         mul.wide.u32 %rd2, %r1, 24; add.s64 %rd3, %rd1, %rd2;
         st.global.v2.u32 [%rd3], {%r2, %r3}; st.global.v2.u32 [%rd3+8], {%r4, %r5};
         st.global.v2.u32 [%rd3+16], {%r6, %r7};",
    );
    let mut done = run(&text, 32, &[&[0; 192]], 5).expect("no fault");
    let out = done.words(0, 192);
    for lane in 0..32u32 {
        let (down, inside) = if lane < 24 { (lane + 8, 1) } else { (lane, 0) };
        let up = if lane >= 2 { lane - 2 } else { lane };
        assert_eq!(out[lane as usize * 6..][..6], [lane ^ 3, down, 5, up, 15, inside]);
    }
}

#[test]
fn carries_run_through_a_chain_of_additions_and_products() {
    let text = kernel(
        1,
        "",
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; add.cc.u32 %r6, %r2, %r4; addc.u32 %r7, %r3, %r5;
         sub.cc.u32 %r8, %r2, %r4; subc.u32 %r9, %r3, %r5;
         mul.lo.u32 %r10, %r2, %r4; mad.lo.cc.u32 %r11, %r2, %r5, %r3; madc.hi.u32 %r12, %r2, %r4, %r5;
         st.global.v4.u32 [%rd1+16], {%r6, %r7, %r8, %r9}; st.global.v2.u32 [%rd1+32], {%r11, %r12};",
    );
    let (x, y) = (0x1234_5678_ffff_fff0u64, 0x0fed_cba9_8000_0011u64);
    let split = |v: u64| [v as u32, (v >> 32) as u32];
    let input = [split(x), split(y), [0; 2], [0; 2], [0; 2]].concat();
    let mut done = run(&text, 1, &[&input], 0).expect("no fault");
    let out = done.words(0, 10);
    assert_eq!(out[4..6], split(x.wrapping_add(y)));
    assert_eq!(out[6..8], split(x.wrapping_sub(y)));
    let [x0, x1] = split(x);
    let [y0, y1] = split(y);
    let low = u64::from(x0.wrapping_mul(y1)) + u64::from(x1);
    let high = ((u64::from(x0) * u64::from(y0)) >> 32) + u64::from(y1) + (low >> 32);
    assert_eq!(out[8..10], [low as u32, high as u32]);
}

#[test]
fn unknown_instructions_are_named_with_their_line() {
    let text = format!("{HEAD}.visible .entry k()\n{{\n tanh.approx.f32 _, 0f3F800000;\n}}");
    let error = Module::parse(&text).expect_err("not known").to_string();
    assert!(error.contains("line 6") && error.contains("tanh.approx"), "{error}");
    for broken in
        ["", ".visible .entry k(", ".visible .entry k() { add.s32 %r1, 1, 2; }", "\u{1F600}"]
    {
        let outcome = Module::parse(broken);
        assert!(broken.is_empty() || outcome.is_err(), "{broken}");
    }
}
