//! Runs one small kernel, then the same kernel with a mistake in it.
use ptx_emu::{Device, Launch, Module};

const PTX: &str = r"
.version 9.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 words)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd3], %r2;
    ret;
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Module::parse(PTX)?.kernel("add_one").ok_or("the kernel is there")?;
    let mut device = Device::new(1 << 20, 1);
    let words = device.allocate(64 * 4).ok_or("there is room")?;
    device.bytes(words, 64 * 4)?.fill(0);
    let params = words.to_le_bytes();
    device
        .launch(&kernel, &Launch { grid: [1; 3], block: [64, 1, 1], shared: 0, params: &params })?;
    println!("first word: {}", device.bytes(words, 4)?[0]);
    // One thread too many leaves the allocation.
    let launch = Launch { grid: [1; 3], block: [65, 1, 1], shared: 0, params: &params };
    println!("{}", device.launch(&kernel, &launch).expect_err("out of bounds"));
    Ok(())
}
