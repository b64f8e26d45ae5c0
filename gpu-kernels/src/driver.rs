//! Safe calls of the CUDA driver: one context, one stream, memory that is used again.
//!
//! Everything an engine does runs on its one stream, in the order of its calls. A buffer may therefore
//! be handed out again as soon as its last user has been queued, without waiting for the device.
//!
//! Repeated sequences are not recorded as CUDA graphs. Between two messages of a protocol run one to a few
//! kernels, with fresh addresses, nonces and offsets among their parameters. A graph would be updated node
//! by node before every run, and would save only the launches' own few microseconds.

mod memory;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CString, c_void},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::{
    DriverError,
    result::{self, ctx, device, event, module, primary_ctx, stream},
    sys,
};
use ring_arith::{Error, Result};

pub(crate) use memory::{Buffer, Mark, Pinned, is_pinned};
use memory::{PINNED, Shelves, size_class};

/// The oldest devices that the kernels run on: compute capability 8.0, Ampere.
const OLDEST: (i32, i32) = (8, 0);
/// Sizes of device buffers are multiples of this many bytes.
const GRAIN: usize = 512;
/// Dynamic shared memory that a kernel may have without asking for it.
const DEFAULT_SHARED: u32 = 48 << 10;

/// A device with its stream and its memory. Dropped when the last tensor on it is.
pub(crate) struct Driver {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    name: String,
    capability: (i32, i32),
    processors: u32,
    memory: Mutex<Shelves>,
    pinned: Mutex<BTreeMap<usize, Vec<usize>>>,
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

/// A loaded module and its kernels.
pub(crate) struct Module {
    handle: sys::CUmodule,
    functions: Mutex<HashMap<String, Function>>,
}

/// A kernel, valid as long as its module, which lives as long as the driver.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

/// Blocks, threads and dynamic shared bytes of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub blocks: [u32; 3],
    pub threads: u32,
    pub shared: u32,
}

/// A kernel parameter: a pointer, a number or a plain structure, as the device lays it out.
pub(crate) struct Arg(Vec<u64>);

impl Arg {
    pub(crate) fn word(value: u64) -> Self {
        Self(vec![value])
    }

    /// Little-endian words of a structure whose fields follow the rules of C.
    pub(crate) fn words(words: Vec<u64>) -> Self {
        Self(words)
    }
}

// SAFETY: handles of the driver API may be used from any thread once the context is current there, and
// every use below makes it current first. Mutexes guard the shared state.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}
// SAFETY: a module handle is only a name for the driver, which locks by itself.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
impl Driver {
    /// Opens device `ordinal`.
    pub(crate) fn open(ordinal: usize) -> Result<Arc<Self>> {
        let none = |reason: String| Error::Device { device: format!("cuda:{ordinal}"), reason };
        // SAFETY: looks for the library; loads it at most.
        if !unsafe { sys::is_culib_present() } {
            return Err(none("no CUDA driver (libcuda) is installed; use the CPU engine".into()));
        }
        let call = |what: &str, e: DriverError| none(format!("{what} failed: {}", text(e)));
        result::init().map_err(|e| call("cuInit", e))?;
        let count = device::get_count().map_err(|e| call("cuDeviceGetCount", e))?;
        let number = i32::try_from(ordinal).ok().filter(|n| *n < count);
        let number =
            number.ok_or_else(|| none(format!("there are {count} devices, numbered from 0")))?;
        let device = device::get(number).map_err(|e| call("cuDeviceGet", e))?;
        let name = device::get_name(device).map_err(|e| call("cuDeviceGetName", e))?;
        let attribute = |a| {
            // SAFETY: `device` is a device of this driver.
            unsafe { device::get_attribute(device, a) }.map_err(|e| call("cuDeviceGetAttribute", e))
        };
        use sys::CUdevice_attribute as A;
        let capability = (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < OLDEST {
            let (major, minor) = capability;
            return Err(none(format!(
                "{name} has compute capability {major}.{minor}, at least {}.{} is needed",
                OLDEST.0, OLDEST.1
            )));
        }
        let processors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32;
        // SAFETY: `device` is a device of this driver; the context is released in `drop`.
        let context = unsafe { primary_ctx::retain(device) }
            .map_err(|e| call("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: the context was just retained.
        unsafe { ctx::set_current(context) }.map_err(|e| call("cuCtxSetCurrent", e))?;
        let stream = stream::create(stream::StreamKind::NonBlocking)
            .map_err(|e| call("cuStreamCreate", e))?;
        Ok(Arc::new(Self {
            device,
            context,
            stream,
            name,
            capability,
            processors,
            memory: Mutex::default(),
            pinned: Mutex::default(),
            modules: Mutex::default(),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Multiprocessors of the device.
    pub(crate) fn processors(&self) -> u32 {
        self.processors
    }

    fn error(&self, what: &str, e: DriverError) -> Error {
        self.failure(format!("{what} failed: {}", text(e)))
    }

    /// An error of this device.
    pub(crate) fn failure(&self, reason: String) -> Error {
        Error::Device { device: self.name.clone(), reason }
    }

    /// The stream on which everything runs.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Makes the context current on this thread.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { ctx::set_current(self.context) }.map_err(|e| self.error("cuCtxSetCurrent", e))
    }

    /// Device memory of at least `bytes` bytes with unspecified content.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let bytes = size_class(bytes);
        let shelf = lock(&self.memory).free.get_mut(&bytes).and_then(Vec::pop);
        if let Some(pointer) = shelf {
            return Ok(Buffer { driver: Arc::clone(self), pointer, bytes });
        }
        self.enter()?;
        // SAFETY: a fresh allocation; the documentation states that its content is unspecified.
        let fresh = || unsafe { result::malloc_sync(bytes) };
        let pointer = match fresh() {
            Ok(pointer) => pointer,
            Err(_) => {
                // Free buffers of other sizes may be enough together.
                self.trim(0)?;
                fresh().map_err(|_| self.out_of_memory(bytes))?
            }
        };
        Ok(Buffer { driver: Arc::clone(self), pointer, bytes })
    }

    fn out_of_memory(&self, bytes: usize) -> Error {
        let (free, total) = result::mem_get_info().unwrap_or_default();
        let reason = format!(
            "{bytes} bytes of memory asked for, {free} of {total} are free; use smaller batches or another device"
        );
        Error::Device { device: self.name.clone(), reason }
    }

    /// Gives free buffers back to the device, unless they take at most `keep` bytes.
    pub(crate) fn trim(&self, keep: usize) -> Result<()> {
        let sizes = |shelves: &Shelves| -> usize {
            shelves.free.iter().map(|(bytes, pointers)| bytes * pointers.len()).sum()
        };
        if sizes(&lock(&self.memory)) <= keep {
            return Ok(());
        }
        self.synchronize()?;
        let free = std::mem::take(&mut lock(&self.memory).free);
        for pointer in free.into_values().flatten() {
            // SAFETY: buffers on the shelves are unused, and queued work has ended.
            unsafe { result::free_sync(pointer) }.map_err(|e| self.error("cuMemFree", e))?;
        }
        Ok(())
    }

    /// Page-locked host memory of `len` bytes, zeroed when fresh.
    pub(crate) fn pin(self: &Arc<Self>, len: usize) -> Result<Pinned> {
        let capacity = size_class(len);
        let found = lock(&self.pinned).get_mut(&capacity).and_then(Vec::pop);
        let pointer = match found {
            Some(pointer) => pointer,
            None => {
                self.enter()?;
                // SAFETY: the memory is filled with zeros before anyone reads it.
                let pointer = unsafe {
                    let pointer = result::malloc_host(capacity, sys::CU_MEMHOSTALLOC_PORTABLE)
                        .map_err(|e| self.error("cuMemHostAlloc", e))?;
                    pointer.cast::<u8>().write_bytes(0, capacity);
                    pointer as usize
                };
                lock(&PINNED).insert(pointer, capacity);
                pointer
            }
        };
        Ok(Pinned { driver: Arc::clone(self), pointer, capacity, len })
    }

    /// Queues a copy of page-locked host bytes to the start of a buffer.
    ///
    /// # Safety
    /// The caller must not change or free the bytes until an event shows that the copy has ended.
    pub(crate) unsafe fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= buffer.bytes, "a buffer holds what is written to it");
        self.enter()?;
        // SAFETY: the buffer is large enough; the caller keeps the bytes.
        unsafe { result::memcpy_htod_async(buffer.pointer, bytes, self.stream) }
            .map_err(|e| self.error("cuMemcpyHtoDAsync", e))
    }

    /// An event after all queued work.
    pub(crate) fn mark(self: &Arc<Self>) -> Result<Mark> {
        self.enter()?;
        let event = event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(|e| self.error("cuEventCreate", e))?;
        let mark = Mark { driver: Arc::clone(self), event };
        // SAFETY: event and stream live.
        unsafe { event::record(event, self.stream) }.map_err(|e| self.error("cuEventRecord", e))?;
        Ok(mark)
    }

    /// Copies device bytes from `address` on to the host, after all work queued before.
    pub(crate) fn read(self: &Arc<Self>, address: u64, len: usize) -> Result<Pinned> {
        let mut out = self.pin(len)?;
        if len > 0 {
            self.enter()?;
            // SAFETY: callers pass addresses of live buffers that hold `len` bytes from there.
            unsafe { result::memcpy_dtoh_async(out.bytes_mut(), address, self.stream) }
                .map_err(|e| self.error("cuMemcpyDtoHAsync", e))?;
        }
        self.synchronize()?;
        Ok(out)
    }

    /// Copies device bytes, which lie in live buffers and do not overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: callers pass addresses of live buffers that hold `len` bytes from there.
        unsafe { result::memcpy_dtod_async(to, from, len, self.stream) }
            .map_err(|e| self.error("cuMemcpyDtoDAsync", e))
    }

    /// Waits for all queued work.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { stream::synchronize(self.stream) }
            .map_err(|e| self.error("cuStreamSynchronize", e))
    }

    /// The module of the given text, loaded once.
    pub(crate) fn module(&self, key: u64, text: impl FnOnce() -> String) -> Result<Arc<Module>> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        self.enter()?;
        let text = CString::new(text()).expect("PTX holds no NUL");
        // SAFETY: the image is a NUL-terminated text that outlives the call.
        let handle = unsafe { module::load_data(text.as_ptr().cast()) };
        let handle = handle.map_err(|e| self.error("cuModuleLoadData", e))?;
        let module = Arc::new(Module { handle, functions: Mutex::default() });
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }

    /// A kernel of a module that will be launched with `shared` bytes of dynamic shared memory.
    pub(crate) fn function(&self, module: &Module, name: &str, shared: u32) -> Result<Function> {
        let mut functions = lock(&module.functions);
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        self.enter()?;
        let symbol = CString::new(name).expect("kernel names hold no NUL");
        // SAFETY: the module is loaded.
        let handle = unsafe { module::get_function(module.handle, symbol) };
        let handle = handle.map_err(|e| self.error("cuModuleGetFunction", e))?;
        if shared > DEFAULT_SHARED {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SIZE;
            // SAFETY: the function is loaded.
            unsafe { result::function::set_function_attribute(handle, SIZE, shared as i32) }
                .map_err(|e| self.error("cuFuncSetAttribute", e))?;
        }
        let function = Function(handle);
        functions.insert(name.to_string(), function);
        Ok(function)
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// The arguments must have the kernel's types. Every address in them must lie in a live buffer
    /// that is large enough for the kernel's accesses.
    pub(crate) unsafe fn launch(&self, function: Function, grid: Grid, args: &[Arg]) -> Result<()> {
        self.enter()?;
        let mut pointers: Vec<*mut c_void> =
            args.iter().map(|a| a.0.as_ptr().cast_mut().cast()).collect();
        let [x, y, z] = grid.blocks;
        // SAFETY: the caller vouches for the arguments, which the driver copies before it returns.
        unsafe {
            result::launch_kernel(
                function.0,
                (x, y, z),
                (grid.threads, 1, 1),
                grid.shared,
                self.stream,
                &mut pointers,
            )
        }
        .map_err(|e| self.error("cuLaunchKernel", e))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Failures here cannot be reported, and the process's end frees everything.
        if self.synchronize().is_err() {
            return;
        }
        let _ = self.trim(0);
        for (_, pointers) in std::mem::take(&mut *lock(&self.pinned)) {
            for pointer in pointers {
                lock(&PINNED).remove(&pointer);
                // SAFETY: free page-locked memory of this driver.
                let _ = unsafe { result::free_host(pointer as *mut c_void) };
            }
        }
        for (_, module) in lock(&self.modules).drain() {
            // SAFETY: nothing is queued any more, and functions die with the driver.
            let _ = unsafe { module::unload(module.handle) };
        }
        // SAFETY: nothing is queued any more.
        unsafe {
            let _ = stream::destroy(self.stream);
            let _ = primary_ctx::release(self.device);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded state is consistent after every statement, so it stays usable after a panic
    // elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's own words for an error.
fn text(e: DriverError) -> String {
    let name = e.error_name().map(|n| n.to_string_lossy().into_owned());
    let what = e.error_string().map(|n| n.to_string_lossy().into_owned());
    format!("{} ({})", name.unwrap_or_else(|_| format!("{:?}", e.0)), what.unwrap_or_default())
}
