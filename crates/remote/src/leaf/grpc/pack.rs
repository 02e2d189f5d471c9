//! Streaming Zstandard. On systems for which the C library is not built, compression is never used.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod with {
    use bytes::Bytes;
    use std::io::{self, Write};

    pub(in super::super) const IS_HERE: bool = true;
    /// The fastest level, because the network is slower.
    const LEVEL: i32 = 1;
    /// The most bytes that one received piece may unpack to. A server that sends more is rejected.
    const UNPACKED_BYTES_MAX: usize = 64 << 20;

    pub(in super::super) struct Packer(zstd::stream::write::Encoder<'static, Vec<u8>>);

    impl Packer {
        pub(in super::super) fn new() -> io::Result<Self> {
            zstd::stream::write::Encoder::new(Vec::new(), LEVEL).map(Packer)
        }

        pub(in super::super) fn pack(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
            self.0.write_all(bytes)?;
            Ok(std::mem::take(self.0.get_mut()).into())
        }

        pub(in super::super) fn finish(self) -> io::Result<Bytes> {
            self.0.finish().map(Bytes::from)
        }
    }

    /// A destination for unpacked bytes with a limit.
    #[derive(Default)]
    struct Bounded(Vec<u8>);

    impl Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() + bytes.len() > UNPACKED_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a piece unpacks to too many bytes"));
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(in super::super) struct Unpacker(zstd::stream::write::Decoder<'static, Bounded>);

    impl Unpacker {
        pub(in super::super) fn new() -> io::Result<Self> {
            zstd::stream::write::Decoder::new(Bounded::default()).map(Unpacker)
        }

        pub(in super::super) fn unpack(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
            self.0.write_all(bytes)?;
            self.0.flush()?;
            Ok(std::mem::take(&mut self.0.get_mut().0).into())
        }
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod with {
    use bytes::Bytes;
    use std::io;

    pub(in super::super) const IS_HERE: bool = false;

    pub(in super::super) enum Packer {}
    pub(in super::super) enum Unpacker {}

    impl Packer {
        pub(in super::super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn pack(&mut self, _: &[u8]) -> io::Result<Bytes> {
            match *self {}
        }

        pub(in super::super) fn finish(self) -> io::Result<Bytes> {
            match self {}
        }
    }

    impl Unpacker {
        pub(in super::super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn unpack(&mut self, _: &[u8]) -> io::Result<Bytes> {
            match *self {}
        }
    }
}

pub(super) use with::{IS_HERE, Packer, Unpacker};

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    #[test]
    fn piece_by_piece_and_back() {
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let mut packer = Packer::new().expect("zstd");
        let mut packed: Vec<u8> = Vec::new();
        for piece in bytes.chunks(70_001) {
            packed.extend_from_slice(&packer.pack(piece).expect("packs"));
        }
        packed.extend_from_slice(&packer.finish().expect("ends"));
        assert!(packed.len() < bytes.len() / 2);
        let mut unpacker = Unpacker::new().expect("zstd");
        let mut back = Vec::new();
        for piece in packed.chunks(1001) {
            back.extend_from_slice(&unpacker.unpack(piece).expect("unpacks"));
        }
        assert!(back == bytes);
        assert!(Unpacker::new().expect("zstd").unpack(b"no such form").is_err());
    }
}
