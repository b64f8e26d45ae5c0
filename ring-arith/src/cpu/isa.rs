//! The instruction sets of this CPU: detected once, proved by a token.

use std::fmt;
use std::sync::OnceLock;

use super::bilinear::tiles_pay;

/// Proof that the running CPU, and its operating system, support a set of instructions.
///
/// Values come only from [`Isa::detect`] and [`Isa::supported`], so a value proves that a call of
/// the matching `#[target_feature]` code is sound.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa(Kind);

/// The sets of instructions that kernels are written for, each containing those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Plain Rust, for every target.
    Portable,
    /// x86-64 with AVX2.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// All of AVX-512 above, VBMI, and AMX tiles of 8-bit integers.
    Amx,
}

impl Isa {
    /// The best set of this machine.
    pub fn detect() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self(best()))
    }

    /// The set with which products are quickest on this machine: the best one, unless its tiles turn out to be
    /// slower than vectors, as they do on some virtual machines. Takes a millisecond the first time. Results do not
    /// depend on it.
    pub fn quickest() -> Self {
        static QUICKEST: OnceLock<Isa> = OnceLock::new();
        *QUICKEST.get_or_init(|| {
            let best = Self::detect();
            let vectors = Self(Kind::Avx512);
            if best.0 == Kind::Amx && !tiles_pay(best, vectors) { vectors } else { best }
        })
    }

    /// Every set this machine can run, [`Kind::Portable`] first.
    pub fn supported() -> Vec<Self> {
        let best = Self::detect().0;
        let all = [Kind::Portable, Kind::Avx2, Kind::Avx512, Kind::Amx];
        all.into_iter().filter(|&kind| kind <= best).map(Self).collect()
    }

    /// The kind of this set.
    pub fn kind(self) -> Kind {
        self.0
    }

    /// The set's name in reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            Kind::Avx2 => "avx2",
            Kind::Avx512 => "avx512",
            Kind::Amx => "amx",
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Kind {
    Kind::Portable
}

#[cfg(target_arch = "x86_64")]
fn best() -> Kind {
    use std::arch::is_x86_feature_detected as has;
    if !has!("avx2") {
        return Kind::Portable;
    }
    if !(has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")) {
        return Kind::Avx2;
    }
    if has!("avx512vbmi") && amx::usable() { Kind::Amx } else { Kind::Avx512 }
}

/// AMX needs the CPU's tiles, their place in the saved state, and the kernel's permission.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _xgetbv};

    /// Bits of leaf 7: AMX-TILE and AMX-INT8.
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    /// Bits of XCR0: tile configuration and tile data.
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    const SYS_ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILE_DATA: u64 = 18;

    /// True if tile instructions work in every thread of this process. Asks the operating system's
    /// kernel for permission, which the process then keeps.
    pub(super) fn usable() -> bool {
        if __cpuid_count(7, 0).edx & TILE_AND_INT8 != TILE_AND_INT8 {
            return false;
        }
        // SAFETY: AVX-512 was detected before, which implies XGETBV enabled by the system.
        if unsafe { saved_state() } & TILE_STATE != TILE_STATE {
            return false;
        }
        // Eight tiles of 16 rows of 64 bytes are palette 1; kernels are written for that.
        let palette = __cpuid_count(0x1d, 1);
        let full = palette.ebx == 64 | 8 << 16 && palette.ecx & 0xffff == 16;
        full && permission_granted()
    }

    #[target_feature(enable = "xsave")]
    fn saved_state() -> u64 {
        // SAFETY: register 0 exists wherever XGETBV does.
        unsafe { _xgetbv(0) }
    }

    fn permission_granted() -> bool {
        let result: i64;
        // SAFETY: this system call takes two integers and touches no memory of ours; the kernel
        // clobbers rcx and r11 alone.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") SYS_ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILE_DATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        result == 0
    }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
mod amx {
    /// Other systems are not asked for tiles.
    pub(super) fn usable() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_sets_start_portable_and_end_with_the_detected_one() {
        let all = Isa::supported();
        assert_eq!(all[0].kind(), Kind::Portable);
        assert_eq!(*all.last().unwrap(), Isa::detect());
        assert!(all.windows(2).all(|w| w[0].kind() < w[1].kind()));
        // The chosen set can run, is the same each time, and is at least as good as vectors.
        assert!(all.contains(&Isa::quickest()));
        assert_eq!(Isa::quickest(), Isa::quickest());
        assert!(Isa::quickest().kind() >= Isa::detect().kind().min(Kind::Avx512));
    }
}
