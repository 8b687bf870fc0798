//! The hash of a server's certificate that both sides know: `tls-server-end-point` of RFC 5929.
//!
//! It is taken with the hash function of the certificate's own signature, which is all that has to be read of it.

use sha2::{Digest, Sha256, Sha384, Sha512};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Which hash a signature algorithm stands for; those of RFC 5929's rule that MD5 and SHA-1 count as SHA-256 with them.
/// Left out are those that don't name one (RSA-PSS, Ed25519): there servers differ, or refuse.
const ALGORITHMS: [(&[u8], Hash); 8] = [
    // md5, sha1, sha256, sha384 and sha512WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", Hash::Sha384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Hash::Sha512),
    // ecdsa-with-SHA256, 384 and 512
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Hash::Sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Hash::Sha384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", Hash::Sha512),
];

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of a certificate in DER; nothing when its signature names no hash that both sides would take.
pub(super) fn fingerprint(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let (_, hash) = ALGORITHMS.iter().find(|(known, _)| *known == algorithm)?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { algorithm OID, … }, … }`
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (fields, _) = element(SEQUENCE, certificate)?;
    let (_, after_body) = element(SEQUENCE, fields)?;
    let (algorithm, _) = element(SEQUENCE, after_body)?;
    let (identifier, _) = element(OBJECT_IDENTIFIER, algorithm)?;
    Some(identifier)
}

/// The content of the first element, which has to have this tag, and what comes after it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // So many bytes hold the length; more than four would be longer than any certificate.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
    };

    use super::*;

    fn certificate(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        CertificateParams::new(["server".to_owned()]).unwrap().self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_hashed_as_it_was_signed() {
        let certificate = certificate(&PKCS_ECDSA_P256_SHA256);
        assert_eq!(fingerprint(&certificate).unwrap(), Sha256::digest(&certificate).to_vec());
        let certificate = self::certificate(&PKCS_ECDSA_P384_SHA384);
        assert_eq!(fingerprint(&certificate).unwrap(), Sha384::digest(&certificate).to_vec());
    }

    #[test]
    fn a_signature_that_names_no_hash_binds_nothing() {
        assert_eq!(fingerprint(&certificate(&PKCS_ED25519)), None);
    }

    #[test]
    fn no_bytes_make_the_reader_stumble() {
        let certificate = certificate(&PKCS_ECDSA_P256_SHA256);
        for end in 0..certificate.len() {
            // The whole is cut off, so that its length is wrong.
            assert_eq!(fingerprint(&certificate[..end]), None, "{end}");
        }
        for bytes in [&b"\x30\x80"[..], b"\x30\x85\0\0\0\0\0", b"\x30\x84\xff\xff\xff\xff", b"\x31\x00", b"\x30"] {
            assert_eq!(fingerprint(bytes), None, "{bytes:?}");
        }
    }
}
