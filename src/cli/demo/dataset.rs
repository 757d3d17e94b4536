//! The made-up data set: JPEG files in the layout of ImageFolder, `train/CLASS/CLASS_0001.jpg`.
//!
//! Always true: every file is another picture and decodes; the same number and seed give the same bytes on any machine, however
//! many threads make them. All of it is in memory: a file takes about 115 KB, as in ImageNet.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageError};

use super::pictures::{KINDS, Textures, paint};

/// The most that a demo holds in memory: about 2.3 GB.
pub(super) const MAX_IMAGES: u32 = 20_000;

/// With the pictures' grain this gives the sizes of photographs on the web.
const JPEG_QUALITY: u8 = 97;

/// One file of the data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Key in the bucket, and path below the mount point.
    pub(super) key: String,
    /// The file.
    pub(super) bytes: Bytes,
}

/// Why there is no data set.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatasetError {
    /// None, or more than memory should take.
    #[error(
        "{0} images cannot be made: the data set is held in memory, so give --images a number from 1 to {MAX_IMAGES}"
    )]
    Count(u32),
    /// A picture could not be compressed.
    #[error("a picture could not be compressed: {0}")]
    Encode(#[from] ImageError),
}

/// Makes `count` files with `threads` threads and returns them in the order of their keys.
pub(super) fn generate(count: u32, seed: u64, threads: usize) -> Result<Vec<Image>, DatasetError> {
    if count == 0 || count > MAX_IMAGES {
        return Err(DatasetError::Count(count));
    }
    let textures = Textures::new(seed);
    let count = count as usize;
    let next = AtomicUsize::new(0);
    let share = || -> Result<Vec<Image>, DatasetError> {
        let mut images = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(images);
            }
            images.push(image(&textures, seed, index)?);
        }
    };
    let mut images = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(share)).collect();
        for worker in workers {
            images.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, DatasetError>(())
    })?;
    images.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(images)
}

/// File number `index`; the classes take turns.
fn image(textures: &Textures, seed: u64, index: usize) -> Result<Image, DatasetError> {
    let kind = index % KINDS.len();
    let class = KINDS[kind];
    let number = index / KINDS.len() + 1;
    let picture = paint(textures, kind, seed.wrapping_add(1 + index as u64));
    let mut bytes = Vec::with_capacity(192 << 10);
    JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY).encode(
        &picture.rgb,
        u32::from(picture.width),
        u32::from(picture.height),
        ExtendedColorType::Rgb8,
    )?;
    bytes.shrink_to_fit();
    Ok(Image { key: format!("train/{class}/{class}_{number:04}.jpg"), bytes: bytes.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn made(count: u32, threads: usize) -> Vec<Image> {
        generate(count, 7, threads).unwrap()
    }

    #[test]
    fn files_lie_in_one_folder_for_each_class_and_come_in_the_order_of_their_keys() {
        let images = made(25, 2);
        let keys: Vec<_> = images.iter().map(|image| image.key.as_str()).collect();
        assert_eq!(
            keys[..3],
            ["train/aurora/aurora_0001.jpg", "train/aurora/aurora_0002.jpg", "train/aurora/aurora_0003.jpg"]
        );
        assert_eq!(keys[24], "train/wood/wood_0002.jpg");
        assert!(keys.is_sorted());
        let classes: HashSet<_> = keys.iter().map(|key| key.split('/').nth(1).unwrap()).collect();
        assert_eq!(classes, HashSet::from(KINDS));
    }

    #[test]
    fn every_file_is_another_picture_and_decodes_to_its_size() {
        let images = made(30, 2);
        let mut seen = HashSet::new();
        for Image { key, bytes } in &images {
            let decoded = image::load_from_memory_with_format(bytes, image::ImageFormat::Jpeg).unwrap();
            assert!((336..=448).contains(&decoded.width()) && (252..=336).contains(&decoded.height()), "{key}");
            assert!(seen.insert(decoded.into_rgb8().into_raw()), "{key} is a copy");
        }
    }

    #[test]
    fn files_are_as_large_as_photographs() {
        let images = made(200, 2);
        let sizes: Vec<_> = images.iter().map(|image| image.bytes.len()).collect();
        let average = sizes.iter().sum::<usize>() / sizes.len();
        assert!((100_000..130_000).contains(&average), "{average}");
        let usual = sizes.iter().filter(|size| (60_000..180_000).contains(*size)).count();
        assert!(usual * 100 >= sizes.len() * 95, "{usual} of {} from 60 to 180 KB", sizes.len());
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_number_of_threads() {
        assert_eq!(made(12, 1), made(12, 5));
        assert_ne!(made(12, 1), generate(12, 8, 1).unwrap());
    }

    #[test]
    fn numbers_that_cannot_be_made_are_refused_with_those_that_can() {
        for count in [0, MAX_IMAGES + 1] {
            let error = generate(count, 1, 1).unwrap_err();
            assert!(error.to_string().contains("1 to 20000"), "{error}");
        }
    }
}
