//! Gives the library the name of the real driver's. A process that has loaded it by its path and then
//! asks for `libcuda.so` gets this library.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
