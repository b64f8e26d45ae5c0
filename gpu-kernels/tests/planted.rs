//! The shipped matrix kernels with one mistake planted in each: the emulator finds every one of them, so that
//! the tests that find none mean something.

use ptx_emu::{Device, Error, Fault, Launch, Module};

const LIMBS: &str = include_str!("../ptx/limbs.ptx");
const WGMMA: &str = include_str!("../ptx/wgmma.ptx");
/// Steps of 32 columns: more than either kernel holds at a time.
const STEPS: usize = 8;

/// One tile of a product of zeros: 64 rows and the kernel's columns.
struct Tile<'a> {
    kernel: &'a str,
    cols: usize,
    shared: usize,
    /// Bytes that the right operand's planes lack.
    missing: usize,
}

const MMA: Tile<'_> = Tile { kernel: "matmul_u8", cols: 64, shared: 3 << 15, missing: 0 };
const HOPPER: Tile<'_> = Tile { kernel: "matmul_wgmma", cols: 96, shared: 5 * 40_960, missing: 0 };

impl Tile<'_> {
    fn run(&self, text: &str, seed: u64) -> Result<(), Error> {
        let module = Module::parse(text)?;
        let kernel = module.kernel(self.kernel).expect("the module has the kernel");
        let mut device = Device::new(1 << 24, seed);
        let (rows, depth) = (64, 32 * STEPS);
        let sizes = [rows * self.cols * 8, rows * depth * 8, self.cols * depth * 8 - self.missing];
        let mut params: Vec<u8> = Vec::new();
        for size in sizes {
            let at = device.allocate(size).expect("room");
            device.bytes(at, size)?.fill(0);
            params.extend(at.to_le_bytes());
        }
        // `MatMul`, `Part` and `Addends`, as the CUDA sources lay them out.
        let words = |numbers: &[usize]| -> Vec<u8> {
            numbers.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect()
        };
        params.extend(words(&[rows, self.cols, depth, 0]));
        params.extend([0; 48]);
        params.extend(words(&[STEPS, 1, 1, 0, 0, 0]));
        params.extend([0; 160]);
        assert_eq!(params.len(), kernel.params().last().map_or(0, |p| p.offset + p.bytes));
        let launch =
            Launch { grid: [1; 3], block: [256, 1, 1], shared: self.shared, params: &params };
        device.launch(&kernel, &launch)
    }

    /// The faults that runs in several orders end with; an error if one ends without.
    fn faults(&self, text: &str) -> Vec<Fault> {
        let outcome = |seed| match self.run(text, seed) {
            Err(Error::Kernel { fault, .. }) => fault,
            other => panic!("{}: not caught with seed {seed}: {other:?}", self.kernel),
        };
        (0..3).map(outcome).collect()
    }

    /// The module with `old` replaced by `new` in this kernel alone, the `which`-th time it occurs.
    fn planted(&self, text: &str, old: &str, new: &str, which: usize) -> String {
        let start = text.find(&format!(".entry {}(", self.kernel)).expect("the kernel is there");
        let (at, _) = text[start..].match_indices(old).nth(which).expect("the text is there");
        let at = start + at;
        format!("{}{new}{}", &text[..at], &text[at + old.len()..])
    }
}

#[test]
fn without_a_mistake_nothing_is_found() {
    MMA.run(LIMBS, 1).expect("no fault");
    HOPPER.run(WGMMA, 1).expect("no fault");
}

#[test]
fn a_race_is_caught() {
    // Without the barrier of the main loop a warp reads what others copied, or they copy over it.
    let text = MMA.planted(LIMBS, "bar.sync \t0;", "", 0);
    for fault in MMA.faults(&text) {
        let found =
            matches!(fault, Fault::Race { .. } | Fault::InFlight(_) | Fault::Uninitialised(_));
        assert!(found, "{fault}");
    }
}

#[test]
fn a_missing_wait_is_caught() {
    let text = MMA.planted(LIMBS, "cp.async.wait_group 1;", "cp.async.wait_group 2;", 0);
    for fault in MMA.faults(&text) {
        assert!(matches!(fault, Fault::InFlight(_)), "{fault}");
    }
    // A stage is loaded again while products may still read it.
    let text = HOPPER.planted(
        WGMMA,
        "wgmma.wait_group.sync.aligned 1;",
        "wgmma.wait_group.sync.aligned 3;",
        0,
    );
    for fault in HOPPER.faults(&text) {
        assert!(matches!(fault, Fault::InFlight(_) | Fault::Race { .. }), "{fault}");
    }
    let text = HOPPER.planted(WGMMA, "wgmma.fence.sync.aligned;", "", 0);
    for fault in HOPPER.faults(&text) {
        assert_eq!(fault, Fault::MissingFence);
    }
}

#[test]
fn an_access_out_of_bounds_is_caught() {
    for (tile, text) in [(MMA, LIMBS), (HOPPER, WGMMA)] {
        for fault in (Tile { missing: 16, ..tile }).faults(text) {
            assert!(matches!(fault, Fault::OutOfBounds { space: "global", .. }), "{fault}");
        }
    }
}
