//! Perfetto's own trace format: protocol buffers, of which only the parts that are written here are
//! declared. A process is a named track below its parent's track, with one slice for its life. The
//! field numbers are those of Perfetto's `trace_packet.proto` and `track_event/`.

use prost::Message;

use super::arguments::arguments;
use crate::directory::RecordedRun;
use crate::lanes::lanes;
use crate::processes::processes;

/// The sequence ID of all packets, because they come from one writer.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<Annotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// Returns a run as a file for ui.perfetto.dev.
pub fn perfetto(run: &RecordedRun) -> Vec<u8> {
    let all = processes(run).all;
    // Track 0 belongs to the whole trace.
    let track = |at: usize| at as u64 + 1;
    let mut timed: Vec<Packet> = Vec::with_capacity(all.len() * 2);
    let mut packet: Vec<Packet> = Vec::with_capacity(all.len() * 3);
    let blank = |timestamp| Packet { timestamp, trusted_packet_sequence_id: Some(SEQUENCE), ..Packet::default() };
    for (at, process) in all.iter().enumerate() {
        let descriptor = TrackDescriptor {
            uuid: Some(track(at)),
            name: Some(format!("{} {}", process.label, process.pid)),
            parent_uuid: process.parent.map(track),
        };
        packet.push(Packet { track_descriptor: Some(descriptor), ..blank(None) });
        let annotation =
            |(name, value): (&str, String)| Annotation { name: Some(name.into()), string_value: Some(value) };
        let event = |kind| TrackEvent { kind: Some(kind), track_uuid: Some(track(at)), ..TrackEvent::default() };
        let begin = TrackEvent {
            name: Some(process.label.clone()),
            categories: vec![process.outcome.name().to_owned()],
            debug_annotations: arguments(process, &run.actions).into_iter().map(annotation).collect(),
            ..event(SLICE_BEGIN)
        };
        timed.push(Packet { track_event: Some(begin), ..blank(Some(process.start_ns)) });
        timed.push(Packet { track_event: Some(event(SLICE_END)), ..blank(Some(process.end_ns)) });
    }
    // The spans of reports are in tracks behind those of the processes.
    let (of_lane, count) = lanes(run.spans.iter().map(|span| (span.start_ns, span.end_ns)));
    for lane in 0..count {
        let name = Some(format!("reports of build tools {lane}"));
        let descriptor = TrackDescriptor { uuid: Some(track(all.len() + lane)), name, parent_uuid: None };
        packet.push(Packet { track_descriptor: Some(descriptor), ..blank(None) });
    }
    for (span, lane) in run.spans.iter().zip(of_lane) {
        let event =
            |kind| TrackEvent { kind: Some(kind), track_uuid: Some(track(all.len() + lane)), ..TrackEvent::default() };
        let detail = Annotation { name: Some("detail".into()), string_value: Some(span.detail.clone()) };
        let begin = TrackEvent { name: Some(span.name.clone()), debug_annotations: vec![detail], ..event(SLICE_BEGIN) };
        timed.push(Packet { track_event: Some(begin), ..blank(Some(span.start_ns)) });
        timed.push(Packet { track_event: Some(event(SLICE_END)), ..blank(Some(span.end_ns)) });
    }
    timed.sort_by_key(|packet| packet.timestamp);
    packet.extend(timed);
    Trace { packet }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;
    use crate::schema::Span;

    #[test]
    fn spans_have_tracks_of_their_own() {
        let mut run = a_run();
        let span = |name: &str| Span { name: name.into(), start_ns: 1000, end_ns: 3000, ..Span::default() };
        run.spans = vec![span("a.o"), span("b.o")];
        let trace = Trace::decode(&perfetto(&run)[..]).expect("is one");
        let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()?.uuid);
        assert_eq!(tracks.collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        let slice = |name: &str| {
            let events = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref());
            events.filter(|event| event.name.as_deref() == Some(name)).find_map(|event| event.track_uuid)
        };
        assert_eq!((slice("a.o"), slice("b.o")), (Some(5), Some(6)));
    }

    #[test]
    fn tracks_and_slices() {
        let bytes = perfetto(&a_run());
        // The first packet is field 1, and holds a descriptor, which is field 60.
        assert_eq!(bytes[0], 1 << 3 | 2);
        let trace = Trace::decode(&bytes[..]).expect("is one");
        let tracks: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
        assert_eq!((tracks.len(), tracks[3].parent_uuid), (4, Some(3)));
        let slices: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()).collect();
        let begun = slices.iter().filter(|event| event.kind == Some(SLICE_BEGIN)).count();
        assert_eq!((slices.len(), begun), (8, 4));
        let times: Vec<_> = trace.packet.iter().filter_map(|packet| packet.timestamp).collect();
        assert!(times.is_sorted());
    }
}
