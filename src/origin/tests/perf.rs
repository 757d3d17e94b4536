use super::*;
use std::io::{Read, Write};
use std::time::Instant;
fn cpu() -> f64 {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim() == "origin" {
            let s = std::fs::read_to_string(path.join("schedstat")).unwrap();
            total += s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
        }
    }
    total
}
fn one(stream: &mut std::net::TcpStream, req: &[u8], buf: &mut [u8]) -> usize {
    stream.write_all(req).unwrap();
    let mut got = 0;
    let mut need = usize::MAX;
    let mut total = 0;
    while total < need {
        let n = stream.read(&mut buf[got..]).unwrap();
        assert!(n > 0);
        total += n;
        if need == usize::MAX {
            got += n;
            if let Some(end) = buf[..got].windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&buf[..end]).to_lowercase();
                assert!(head.starts_with("http/1.1 2"), "{head}");
                let len: usize = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
                need = end + 4 + len;
                got = 0;
            }
        }
    }
    need
}
fn sign(origin: &Origin, path: &str, query: &str) -> String {
    use aws_credential_types::Credentials;
    use aws_sigv4::http_request::*;
    let id = Credentials::new("AK", "SK", None, None, "t").into();
    let mut settings = SigningSettings::default();
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    let params = aws_sigv4::sign::v4::SigningParams::builder().identity(&id).region("us-east-1").name("s3")
        .time(std::time::SystemTime::now()).settings(settings).build().unwrap().into();
    let url = format!("{}{path}{query}", origin.endpoint());
    let req = SignableRequest::new("GET", url, std::iter::empty(), SignableBody::UnsignedPayload).unwrap();
    let (out, _) = sign(req, &params).unwrap().into_parts();
    let mut text = format!("GET {path}{query} HTTP/1.1\r\nHost: {}\r\n", origin.address());
    for (n, v) in out.headers() { text += &format!("{n}: {v}\r\n"); }
    text + "\r\n"
}
#[test]
fn perf() {
    let synthetic = Arc::new(SyntheticBucket::new(SyntheticKeys::ImageClasses { prefix: "train/".into(), objects: 10_000_000, classes: 1000, mean_bytes: 115_000, spread_percent: 0 }).unwrap());
    let key = synthetic.row(5_000_000).unwrap().0;
    let big = Arc::new(SyntheticBucket::new(SyntheticKeys::Explicit(vec![("big".into(), 4 << 30)])).unwrap());
    let memory = Arc::new(MemoryBucket::new());
    memory.insert("k", vec![7u8; 115_000]);
    memory.insert("big", vec![7u8; 1 << 28]);
    for signed in [false, true] {
        let origin = Origin::start(OriginConfig { credentials: signed.then(|| ("AK".into(), "SK".into())), buckets: vec![("syn".into(), synthetic.clone()), ("mem".into(), memory.clone()), ("big".into(), big.clone())], ..OriginConfig::default() }).unwrap();
        let mut stream = std::net::TcpStream::connect(origin.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buf = vec![0; 1 << 20];
        for (name, path, query, n) in [("mem 115K", "/mem/k".to_string(), "", 5000), ("syn 115K", format!("/syn/{key}"), "", 5000), ("mem 256M", "/mem/big".into(), "", 8), ("syn 4G", "/big/big".into(), "", 1), ("list 1000 syn", "/syn".into(), "?encoding-type=url&list-type=2&prefix=train%2F", 500)] {
            let req = sign(&origin, &path, query);
            let req = if signed { req } else { format!("GET {path}{query} HTTP/1.1\r\nHost: x\r\n\r\n") };
            one(&mut stream, req.as_bytes(), &mut buf);
            let (c, t) = (cpu(), Instant::now());
            let mut bytes = 0;
            for _ in 0..n { bytes += one(&mut stream, req.as_bytes(), &mut buf); }
            let (c, t) = (cpu() - c, t.elapsed().as_secs_f64());
            println!("signed={signed} {name}: server CPU {:.1} us/req, wall {:.1} us/req, {:.0} MB/s", c / n as f64 * 1e6, t / n as f64 * 1e6, bytes as f64 / t / 1e6);
        }
    }
    let mut b = vec![0; 256 << 10];
    let me = || std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
    let t = me();
    for i in 0..20000u64 { synthetic_bytes(i, i << 18, &mut b); std::hint::black_box(&b); }
    println!("synthetic_bytes {:.1} GB/s", 20000.0 * b.len() as f64 / (me() - t) / 1e9);
    let q = super::super::listing::ListQuery { max_keys: 1000, ..Default::default() };
    let t = me();
    for _ in 0..200 { std::hint::black_box(q.page(&*synthetic).unwrap()); }
    println!("page alone {:.0} us", (me() - t) / 200.0 * 1e6);
}
