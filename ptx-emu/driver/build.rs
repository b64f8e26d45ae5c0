//! Names the library as the real driver's is named, so that whoever has loaded it by its path and then
//! asks for `libcuda.so` gets this one.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
