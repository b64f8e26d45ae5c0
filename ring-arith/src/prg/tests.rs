//! Known answers of the generators, and that a stream is one sequence however it is asked for.

use super::philox::Philox;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn key(hex: &str) -> [u8; 32] {
    let mut key = [0; 32];
    let given = bytes(hex);
    key[..given.len()].copy_from_slice(&given);
    key
}

fn words(hex: &str) -> Vec<u64> {
    bytes(hex).chunks(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect()
}

#[test]
fn aes_encrypts_the_block_of_fips_197_appendix_c1() {
    let aes = aes_ctr::Aes128Ctr::new(&key("000102030405060708090a0b0c0d0e0f"));
    let mut out = [0; 2];
    aes.blocks(0x0011_2233_4455_6677, 0x8899_aabb_ccdd_eeff, &mut out);
    assert_eq!(out[..], words("69c4e0d86a7b0430d8cdb78070b4c55a"));
}

#[test]
fn aes_counter_mode_gives_the_output_blocks_of_sp_800_38a_f51() {
    let aes = aes_ctr::Aes128Ctr::new(&key("2b7e151628aed2a6abf7158809cf4f3c"));
    let mut out = [0; 8];
    aes.blocks(0xf0f1_f2f3_f4f5_f6f7, 0xf8f9_fafb_fcfd_feff, &mut out);
    let published = "ec8cdf7398607cb0f2d21675ea9ea1e4 362b7c3c6773516318a077d7fc5073ae
        6a2cc3787889374fbeb4c81b17ba6c44 e89c399ff0f198c6d40a31db156cabfe";
    assert_eq!(out[..], words(published));
}

#[test]
fn chacha_gives_the_first_vectors_of_draft_strombergson_chacha_test_vectors() {
    let first = |generator| {
        let mut out = [0; 16];
        StreamKey::new(generator, &[0; 32]).stream(0).fill(0, &mut out);
        out
    };
    let twelve = "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f
        0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be
        0bd58841203e74fe86fc71338ce0173dc628ebb719bdcbcc151585214cc089b4
        42258dcda14cf111c602b8971b8cc843e91e46ca905151c02744a6b017e69316";
    assert_eq!(first(Generator::ChaCha12)[..], words(twelve));
    let twenty = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7
        da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586
        9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed
        29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f";
    assert_eq!(first(Generator::ChaCha20)[..], words(twenty));
}

#[test]
fn chacha20_gives_the_block_of_rfc_8439_section_232() {
    // Its 32-bit counter and 96-bit nonce fill the same four words of the state.
    let mut secret = [0; 32];
    (0..32).for_each(|i| secret[i] = i as u8);
    let mut out = [0; 8];
    let chacha = chacha::ChaCha::<chacha20::R20>::new(&secret);
    chacha.blocks(0x4a00_0000, 0x0900_0000_0000_0001, &mut out);
    let published = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e
        d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e";
    assert_eq!(out[..], words(published));
}

#[test]
fn chacha_carries_into_the_upper_half_of_its_counter() {
    let chacha = chacha::ChaCha::<chacha20::R12>::new(&[7; 32]);
    let (mut across, mut after) = ([0; 40 * 8], [0; 8]);
    chacha.blocks(3, (1 << 32) - 20, &mut across);
    chacha.blocks(3, 1 << 32, &mut after);
    assert_eq!(across[20 * 8..21 * 8], after);
    chacha.blocks(3, 0, &mut after);
    assert_ne!(across[20 * 8..21 * 8], after);
}

#[test]
fn philox_gives_the_known_answers_of_random123() {
    let block = |k: [u32; 2], x| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&k[0].to_le_bytes());
        bytes[4..8].copy_from_slice(&k[1].to_le_bytes());
        Philox::new(&bytes).block(x)
    };
    assert_eq!(block([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(block([!0; 2], [!0; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        block([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

const ALL: [Generator; 4] =
    [Generator::Aes128Ctr, Generator::ChaCha12, Generator::ChaCha20, Generator::InsecurePhilox];

#[test]
fn a_stream_is_the_same_whatever_pieces_are_asked_for() {
    for generator in ALL {
        let stream = StreamKey::new(generator, &[0x5a; 32]).stream(9);
        for base in [0, (1 << 35) - 200, (1 << 62) + 1] {
            let mut whole = vec![0; 1200];
            stream.fill(base, &mut whole);
            let (mut at, mut size) = (0, 1);
            while at < whole.len() {
                let size_now = size.min(whole.len() - at);
                let mut piece = vec![0; size_now];
                stream.fill(base + at as u64, &mut piece);
                assert_eq!(piece, whole[at..at + size_now], "{generator:?} at {base} + {at}");
                (at, size) = (at + size_now, size * 3 % 71 + 1);
            }
        }
    }
}

#[test]
fn keys_nonces_and_generators_give_different_streams() {
    let mut seen = std::collections::HashSet::new();
    for generator in ALL {
        for fill in [1, 2] {
            let key = StreamKey::new(generator, &[fill; 32]);
            for nonce in [0, 1, 1 << 63] {
                let mut words = [0; 1];
                key.stream(nonce).fill(0, &mut words);
                assert!(seen.insert(words), "{generator:?} {fill} {nonce}");
            }
        }
    }
}

#[test]
fn a_reader_reads_the_stream_and_knows_where_it_is() {
    use rand_core::{Rng, SeedableRng};
    let stream = StreamKey::new(Generator::Aes128Ctr, &[3; 32]).stream(1);
    let mut words = [0; 200];
    stream.fill(5, &mut words);
    let mut reader = stream.reader(5);
    assert_eq!(reader.next_u32(), words[0] as u32);
    for word in &words[1..150] {
        assert_eq!(reader.next_u64(), *word);
    }
    assert_eq!(reader.position(), 155);
    let mut bytes = [0; 12];
    reader.fill_bytes(&mut bytes);
    assert_eq!(bytes[..8], words[150].to_le_bytes());
    assert_eq!(bytes[8..], words[151].to_le_bytes()[..4]);
    assert_eq!(
        StreamReader::from_seed([4; 32]).next_u64(),
        StreamReader::from_seed([4; 32]).next_u64()
    );
}

#[test]
fn debug_output_shows_no_key() {
    let key = StreamKey::new(Generator::ChaCha20, &[0xab; 32]);
    assert_eq!(format!("{key:?}"), "StreamKey(ChaCha20)");
    assert_eq!(format!("{:?}", key.stream(1).reader(0)), "StreamReader(StreamKey(ChaCha20))");
}

#[test]
fn generators_are_found_by_their_names() {
    for generator in Generator::ALL {
        assert_eq!(Generator::named(generator.name()), Some(generator));
    }
    assert_eq!(Generator::named("aes"), None);
    let quick = Generator::quick_on_this_cpu();
    assert!(quick.contains(&Generator::ChaCha12), "what every machine names: {quick:?}");
    assert!(!quick.contains(&Generator::InsecurePhilox));
}
