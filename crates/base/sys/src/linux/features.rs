//! The features of the processor, as compilers determine them for `-march=native`, `-mcpu=native`
//! and `-mtune=native`.
//!
//! Unaware of: which compiler asks.

/// Returns the raw CPUID values that `-march=native` depends on. Two machines for which a compiler
/// may generate different code have different values.
#[cfg(target_arch = "x86_64")]
pub fn processor_features() -> Vec<u8> {
    use std::arch::x86_64::__cpuid_count;
    let mut bytes = Vec::new();
    for (leaf, sub) in [(0, 0), (1, 0), (4, 0), (4, 1), (4, 2), (4, 3), (7, 0), (7, 1), (0xd, 1), (0x14, 0), (0x19, 0)]
        .into_iter()
        .chain((0x8000_0000u32..=0x8000_0008).map(|leaf| (leaf, 0)))
    {
        let answer = __cpuid_count(leaf, sub);
        // The high byte of EBX of leaf 1 says which core answered. No other leaf here says that.
        let ebx = if leaf == 1 { answer.ebx & 0x00ff_ffff } else { answer.ebx };
        // Everything else matters, for example OSXSAVE in ECX.
        for register in [answer.eax, ebx, answer.ecx, answer.edx] {
            bytes.extend(register.to_le_bytes());
        }
    }
    bytes
}

/// Returns what the processor reports about its features. Two machines for which a compiler may
/// generate different code have different values.
///
/// gcc and clang read `/proc/cpuinfo`, because only the kernel can read the register that names a
/// core (`MIDR_EL1`). The lines "CPU implementer", "variant", "part" and "revision" hold that
/// register. Some features come from the auxiliary vector (`AT_HWCAP` and `AT_HWCAP2`) instead.
#[cfg(target_arch = "aarch64")]
pub fn processor_features() -> Vec<u8> {
    let (first, second) = rustix::param::linux_hwcap();
    let mut bytes = [first as u64, second as u64].map(u64::to_le_bytes).concat();
    // If the file cannot be read, compilers cannot read it either, and generate code for any
    // processor.
    bytes.extend(kinds_of_cores(&std::fs::read("/proc/cpuinfo").unwrap_or_default()));
    bytes
}

/// Returns all of `/proc/cpuinfo`, because it is unknown what compilers do on this kind of machine.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn processor_features() -> Vec<u8> {
    std::fs::read("/proc/cpuinfo").unwrap_or_default()
}

/// Returns the paragraphs of an aarch64 `/proc/cpuinfo`, one for each run of equal cores. The lines
/// with the number of the core and the clock speed are left out.
///
/// So machines with 4 and with 64 cores of one kind have the same value. If a machine has cores of
/// two kinds (big.LITTLE), the order of the kinds stays, because gcc goes by the first core and
/// clang by the last.
#[cfg(any(test, target_arch = "aarch64"))]
fn kinds_of_cores(text: &[u8]) -> Vec<u8> {
    let mut kinds: Vec<Vec<&[u8]>> = Vec::new();
    for core in text.split(|byte| *byte == b'\n').collect::<Vec<_>>().split(|line| line.is_empty()) {
        let differs = |line: &&&[u8]| !line.starts_with(b"processor") && !line.starts_with(b"BogoMIPS");
        let kind: Vec<&[u8]> = core.iter().filter(differs).copied().collect();
        if !kind.is_empty() && kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| kind.join(&b'\n')).collect::<Vec<_>>().join(&b"\n\n"[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kernel's text for cores with these numbers, parts and features.
    fn list(cores: &[(u32, &str, &str)]) -> Vec<u8> {
        let paragraph = |(number, part, features): &(u32, &str, &str)| {
            format!(
                "processor\t: {number}\nBogoMIPS\t: {}.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n\
                 CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part}\nCPU revision\t: 0\n\n",
                38 + number
            )
        };
        cores.iter().map(paragraph).collect::<String>().into_bytes()
    }

    const SMALL: &str = "0xd05";
    const LARGE: &str = "0xd0b";
    const FEATURES: &str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics";

    #[test]
    fn how_many_cores_there_are_does_not_matter() {
        let one = kinds_of_cores(&list(&[(0, LARGE, FEATURES)]));
        let many: Vec<_> = (0..128).map(|number| (number, LARGE, FEATURES)).collect();
        assert_eq!(kinds_of_cores(&list(&many)), one);
        let expected = format!(
            "Features\t: {FEATURES}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n\
             CPU part\t: {LARGE}\nCPU revision\t: 0"
        );
        assert_eq!(String::from_utf8_lossy(&one), expected);
    }

    #[test]
    fn what_a_core_is_and_can_do_matters() {
        let answer = |cores: &[(u32, &str, &str)]| kinds_of_cores(&list(cores));
        let (small, large) = ((0, SMALL, FEATURES), (1, LARGE, FEATURES));
        let answers = [
            answer(&[small]),
            answer(&[large]),
            answer(&[(0, SMALL, "fp asimd")]),
            // Two kinds of cores, in both orders.
            answer(&[small, large]),
            answer(&[large, small]),
            // clang goes by the last core.
            answer(&[small, large, small]),
            Vec::new(),
        ];
        for (at, one) in answers.iter().enumerate() {
            assert!(!answers[..at].contains(one), "{at}");
        }
        assert_eq!(answer(&[small, small, large, large]), answer(&[small, large]));
    }

    #[test]
    fn an_unknown_line_matters() {
        let mut text = list(&[(0, LARGE, FEATURES)]);
        let before = kinds_of_cores(&text);
        text.truncate(text.len() - 1);
        text.extend(b"CPU of the future\t: 1\n\n");
        assert_ne!(kinds_of_cores(&text), before);
    }

    #[test]
    fn this_machine_says_something() {
        let features = processor_features();
        assert!(features.len() > 16, "{features:?}");
    }
}
