//! The part of the CUDA driver's interface that the CUDA engine uses, over the emulator.
//!
//! Programs that load `libcuda.so` at run time run unmodified on it. Work is done when it is queued, except copies from
//! the host: those read its memory as late as the program allows. A kernel's fault is printed, and every later call
//! fails, as on a device. Three variables set the emulator up. `PTX_EMU_SEED` sets the order of threads and blocks,
//! `PTX_EMU_MEMORY` the device's bytes, `PTX_EMU_CAPABILITY` its compute capability (`80` for 8.0).
#![allow(non_snake_case, clippy::missing_safety_doc)] // the names and contracts are the driver's

mod cublas;

use std::{
    alloc::Layout,
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use ptx_emu::{Device, Kernel, Launch, Module};

/// Makes this library the `libcuda.so` of this process. It has that name, so it only has to be loaded
/// once from cargo's folder, next to the executable. Does nothing if `TREFOIL_GPU` is set: then the
/// real driver is used.
///
/// # Panics
/// If the library is missing or does not load: this is for tests.
pub fn stand_in() {
    if std::env::var_os("TREFOIL_GPU").is_none() {
        load();
    }
}

/// As [`stand_in`], for a device of the given compute capability (`90` for 9.0), even if a real device
/// exists.
///
/// # Panics
/// As [`stand_in`].
pub fn stand_in_as(capability: u32) {
    // SAFETY: the library's function takes one number.
    unsafe {
        let set = load().get::<extern "C" fn(c_uint)>(b"ptx_emu_capability");
        set.expect("the stand-in has this function")(capability);
    }
}

/// Loads the library; it stays for the rest of the process.
fn load() -> &'static libloading::Library {
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(library()) };
    Box::leak(Box::new(library.expect("the stand-in driver loads")))
}

/// The library's path. The library also has the part of cuBLAS that the engine uses.
///
/// # Panics
/// As [`stand_in`].
pub fn library() -> PathBuf {
    let here = std::env::current_exe().expect("this process has an executable");
    let folder: PathBuf = here.parent().expect("it lies in a folder").into();
    let name = "libptx_emu_driver.so";
    // Tests are in its folder, programs in the one above, examples in a sibling folder.
    let found = ["", "..", "deps", "../deps"].map(|below| folder.join(below).join(name));
    let path = found.iter().find(|p| p.exists());
    path.expect("the stand-in driver was built with this test").clone()
}

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_CODE_FOR_DEVICE: c_int = 209;
const INVALID_PTX: c_int = 218;
const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;
const LAUNCH_FAILED: c_int = 719;

struct Driver {
    device: Device,
    /// Modules by handle, which is their number.
    modules: HashMap<usize, Module>,
    /// Kernels that a handle was given out for; the handle is the number plus 1.
    functions: Vec<Arc<Kernel>>,
    next: usize,
    pinned: HashMap<usize, Layout>,
    /// Copies from the host that were queued: address on the device, on the host, bytes.
    copies: Vec<(u64, usize, usize)>,
    broken: bool,
}

impl Driver {
    /// Does the copies that were queued.
    fn flush(&mut self) -> &mut Self {
        for (to, from, bytes) in std::mem::take(&mut self.copies) {
            // SAFETY: the caller that queued the copy keeps the memory until a wait for it.
            let from = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
            match self.device.bytes(to, bytes) {
                Ok(memory) => memory.copy_from_slice(from),
                Err(error) => {
                    eprintln!("ptx-emu: a queued copy: {error}");
                    self.broken = true;
                }
            }
        }
        self
    }
}

/// The compute capability asked for; 0 leaves it to the environment.
static CAPABILITY: AtomicU32 = AtomicU32::new(0);

/// Sets the compute capability: `90` for 9.0.
#[unsafe(no_mangle)]
pub extern "C" fn ptx_emu_capability(value: c_uint) {
    CAPABILITY.store(value, Ordering::Relaxed);
}

fn capability() -> c_int {
    match CAPABILITY.load(Ordering::Relaxed) {
        0 => setting("PTX_EMU_CAPABILITY", 80) as c_int,
        set => set as c_int,
    }
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Calls `work` on the driver; after a fault everything fails.
fn with(work: impl FnOnce(&mut Driver) -> c_int) -> c_int {
    let mut guard: MutexGuard<'_, Option<Driver>> =
        DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = guard.get_or_insert_with(|| Driver {
        device: Device::new(setting("PTX_EMU_MEMORY", 4 << 30), setting("PTX_EMU_SEED", 1)),
        modules: HashMap::new(),
        functions: Vec::new(),
        next: 1,
        pinned: HashMap::new(),
        copies: Vec::new(),
        broken: false,
    });
    if driver.broken { LAUNCH_FAILED } else { work(driver) }
}

/// Stores a result for the caller.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn put<T>(out: *mut T, value: T) -> c_int {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: checked above and promised by the caller.
    unsafe { out.write(value) };
    SUCCESS
}

/// Functions that only complete the queued work.
macro_rules! nothing {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        /// Completes the queued work.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $ty),*) -> c_int {
            with(|d| if d.flush().broken { LAUNCH_FAILED } else { SUCCESS })
        }
    )*};
}

nothing! {
    cuCtxSynchronize();
    cuStreamSynchronize(stream: usize);
    cuStreamDestroy_v2(stream: usize);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuModuleUnload(module: usize);
    cuEventSynchronize(event: usize);
}

/// Functions that have nothing to do.
macro_rules! known {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        /// Nothing to do.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $ty),*) -> c_int {
            with(|_| SUCCESS)
        }
    )*};
}

known! {
    cuInit(flags: c_uint);
    cuCtxSetCurrent(context: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventDestroy_v2(event: usize);
    cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int);
}

/// Returns success if all queued work is done.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(_event: usize) -> c_int {
    with(|d| if d.copies.is_empty() { SUCCESS } else { NOT_READY })
}

/// One device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(count, 1) }
}

/// The device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    if ordinal == 0 { unsafe { put(device, 0) } } else { 101 }
}

/// The device's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_int {
    let text = b"PTX emulator\0";
    if usize::try_from(len).is_ok_and(|len| len >= text.len()) && !name.is_null() {
        // SAFETY: the caller gives room for `len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        return SUCCESS;
    }
    INVALID_VALUE
}

/// Compute capability (75 and 76) and number of multiprocessors (16); 1 for the rest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _device: c_int,
) -> c_int {
    let known = match attribute {
        75 => capability() / 10,
        76 => capability() % 10,
        16 => 2,
        _ => 1,
    };
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(value, known) }
}

/// The one context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(context, 1) }
}

/// A stream; all are alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _flags: c_uint) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(stream, 1) }
}

/// An event; all are alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(event, 1) }
}

/// Time on an emulator is meaningless: always one millisecond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, _start: usize, _end: usize) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(ms, 1.0) }
}

/// Free and total bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    with(|d| {
        let (room, all) = d.device.room();
        // SAFETY: out parameters of the driver's interface.
        unsafe { put(free, room as usize) | put(total, all as usize) }
    })
}

/// Allocates device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    with(|d| match d.device.allocate(bytes) {
        // SAFETY: an out parameter of the driver's interface.
        Some(at) => unsafe { put(address, at) },
        None => OUT_OF_MEMORY,
    })
}

/// Frees device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    with(|d| if d.flush().device.free(address).is_ok() { SUCCESS } else { INVALID_VALUE })
}

/// Allocates host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    pointer: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_int {
    with(|d| {
        let Ok(layout) = Layout::from_size_align(bytes.max(1), 4096) else { return INVALID_VALUE };
        // SAFETY: the size is not 0.
        let memory = unsafe { std::alloc::alloc(layout) };
        if memory.is_null() {
            return OUT_OF_MEMORY;
        }
        d.pinned.insert(memory as usize, layout);
        // SAFETY: an out parameter of the driver's interface.
        unsafe { put(pointer, memory.cast()) }
    })
}

/// Frees host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> c_int {
    with(|d| match d.flush().pinned.remove(&(pointer as usize)) {
        Some(layout) => {
            // SAFETY: allocated with this layout above, and freed once.
            unsafe { std::alloc::dealloc(pointer.cast(), layout) };
            SUCCESS
        }
        None => INVALID_VALUE,
    })
}

/// Fills device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, _stream: usize) -> c_int {
    with(|d| match d.flush().device.bytes(address, bytes) {
        Ok(memory) => {
            memory.fill(value);
            SUCCESS
        }
        Err(_) => INVALID_VALUE,
    })
}

/// Copies to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const u8,
    bytes: usize,
    _stream: usize,
) -> c_int {
    with(|d| {
        if d.device.bytes(to, bytes).is_err() {
            return INVALID_VALUE;
        }
        d.copies.push((to, from as usize, bytes));
        SUCCESS
    })
}

/// Copies from the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut u8,
    from: u64,
    bytes: usize,
    _stream: usize,
) -> c_int {
    with(|d| match d.flush().device.bytes(from, bytes) {
        Ok(memory) => {
            // SAFETY: the caller's memory has room for `bytes` bytes.
            unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr(), to, bytes) };
            SUCCESS
        }
        Err(_) => INVALID_VALUE,
    })
}

/// Copies on the device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) -> c_int {
    with(|d| {
        let Ok(copy) = d.flush().device.bytes(from, bytes).map(|m| m.to_vec()) else {
            return INVALID_VALUE;
        };
        match d.device.bytes(to, bytes) {
            Ok(memory) => {
                memory.copy_from_slice(&copy);
                SUCCESS
            }
            Err(_) => INVALID_VALUE,
        }
    })
}

/// Loads a module from PTX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_char) -> c_int {
    // SAFETY: an image of PTX is a NUL-terminated text.
    let Ok(text) = unsafe { CStr::from_ptr(image) }.to_str() else { return INVALID_PTX };
    if !runs_here(text) {
        return NO_CODE_FOR_DEVICE;
    }
    with(|d| match Module::parse(text) {
        Ok(parsed) => {
            let handle = d.next;
            d.next += 1;
            d.modules.insert(handle, parsed);
            // SAFETY: an out parameter of the driver's interface.
            unsafe { put(module, handle) }
        }
        Err(error) => {
            eprintln!("ptx-emu: module: {error}");
            INVALID_PTX
        }
    })
}

/// True if the device can run the module's target. A device can run older targets such as `sm_80`;
/// `sm_90a` runs only on its own capability.
fn runs_here(text: &str) -> bool {
    let target = text.lines().find_map(|line| line.trim().strip_prefix(".target sm_"));
    let target = target.map_or("", |t| t.split([',', ' ']).next().unwrap_or(t));
    let number = |t: &str| t.parse::<c_int>().ok();
    match target.strip_suffix('a') {
        Some(only) => number(only) == Some(capability()),
        None => number(target).is_some_and(|oldest| oldest <= capability()),
    }
}

/// A kernel of a module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    // SAFETY: names are NUL-terminated.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return NOT_FOUND };
    with(|d| match d.modules.get(&module).and_then(|m| m.kernel(name)) {
        Some(kernel) => {
            d.functions.push(kernel);
            // SAFETY: an out parameter of the driver's interface.
            unsafe { put(function, d.functions.len()) }
        }
        None => NOT_FOUND,
    })
}

/// Runs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    _stream: usize,
    args: *const *const u8,
    _extra: *const c_void,
) -> c_int {
    with(|d| {
        let Some(kernel) = d.functions.get(function.wrapping_sub(1)).cloned() else {
            return INVALID_VALUE;
        };
        let size = kernel.params().last().map_or(0, |p| p.offset + p.bytes);
        let mut params = vec![0u8; size];
        for (i, p) in kernel.params().iter().enumerate() {
            // SAFETY: the caller gives a pointer to every parameter's value.
            let value = unsafe { std::slice::from_raw_parts(*args.add(i), p.bytes) };
            params[p.offset..p.offset + p.bytes].copy_from_slice(value);
        }
        let launch = Launch {
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            shared: shared as usize,
            params: &params,
        };
        match d.flush().device.launch(&kernel, &launch) {
            Ok(()) => SUCCESS,
            Err(error) => {
                eprintln!("ptx-emu: {error}");
                d.broken = true;
                LAUNCH_FAILED
            }
        }
    })
}

/// A word for an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let text = match error {
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NO_CODE_FOR_DEVICE => c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => c"CUDA_ERROR_INVALID_VALUE",
    };
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(name, text.as_ptr()) }
}

/// A sentence for an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: an out parameter of the driver's interface.
    unsafe { put(text, c"see what the emulator printed".as_ptr()) }
}
