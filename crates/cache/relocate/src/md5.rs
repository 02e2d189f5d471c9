//! MD5 (RFC 1321), by which CMake notices that the commands of a rule have changed.
//!
//! The crates for it bring five others into the wrapper. Nothing here relies on MD5 for safety: it
//! only repeats what CMake computes.
//!
//! Unaware of: what is hashed.

const BLOCK_BYTES: usize = 64;
/// How far the words are rotated in each round of 16 steps. The four values are used in turn.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Returns the MD5 of these bytes.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    // A bit, zeros, and the length in bits fill the last block.
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % BLOCK_BYTES != BLOCK_BYTES - 8 {
        padded.push(0);
    }
    padded.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(BLOCK_BYTES) {
        add(&mut state, block);
    }
    let mut sum = [0; 16];
    for (bytes, word) in sum.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    sum
}

/// Adds a block to the state.
fn add(state: &mut [u32; 4], block: &[u8]) {
    let word = |at: usize| u32::from_le_bytes([block[4 * at], block[4 * at + 1], block[4 * at + 2], block[4 * at + 3]]);
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let round = step / 16;
        let (mixed, at) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        // The constants are the sines of 1, 2, 3 … times 2 to the power of 32.
        let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(word(at % 16));
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(ROTATIONS[round][step % 4])));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::md5;

    /// The sums are those of RFC 1321, and of `md5sum` for texts around the end of a block.
    #[test]
    fn sums_are_those_of_the_standard() {
        let hex = |bytes: &[u8]| md5(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(b"message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        let digits = b"1234567890".repeat(8);
        assert_eq!(hex(&digits), "57edf4a22be3c955ac49da2e2107b67a");
        assert_eq!(hex(&b"a".repeat(55)), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(hex(&b"a".repeat(56)), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(hex(&b"a".repeat(63)), "b06521f39153d618550606be297466d5");
        assert_eq!(hex(&b"a".repeat(64)), "014842d480b571495a4a0363793f7367");
        assert_eq!(hex(&b"a".repeat(65)), "c743a45e0d2e6a95cb859adae0248435");
        assert_eq!(hex(&b"a".repeat(1000)), "cabe45dcc9ae5b66ba86600cca6b8ba8");
    }
}
