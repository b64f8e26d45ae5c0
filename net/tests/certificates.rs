//! Certificates that are renewed, revoked and wrong, while endpoints run.

use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use net::{Authority, Channel, Endpoint, Identity, Job, Party, Role, Security, Serial, Settings};

const DAY: Duration = Duration::from_secs(86_400);
const SOON: Duration = Duration::from_secs(20);

fn server(identity: Identity) -> Endpoint {
    let settings = Settings::new(Security::Tls(identity));
    Endpoint::open(settings.listen("127.0.0.1:0".parse().unwrap()).unwrap()).unwrap()
}

fn client(identity: Identity) -> Endpoint {
    Endpoint::open(Settings::new(Security::Tls(identity))).unwrap()
}

fn alice() -> Role {
    Role::client("alice").unwrap()
}

/// Why a client cannot connect.
fn refusal(client: &Endpoint, server: &Endpoint) -> String {
    client.dial(Party(0), server.address().unwrap()).map(drop).unwrap_err().to_string()
}

/// Both ends of a new channel.
fn channel(server: &Endpoint, client: &Endpoint) -> (Channel, Channel) {
    thread::scope(|scope| {
        let dialled = scope.spawn(|| client.dial(Party(0), server.address().unwrap()).unwrap());
        (server.accept(SOON).expect("a client"), dialled.join().unwrap())
    })
}

fn passes(from: &mut Channel, to: &mut Channel) -> bool {
    let word = Bytes::from_static(b"word");
    from.send(word.clone()).is_ok() && matches!(to.receive(SOON), Ok(Some(got)) if got == word)
}

#[test]
fn a_client_is_told_what_is_wrong_with_either_certificate() {
    let authority = Authority::generate(DAY).unwrap();
    let other = Authority::generate(DAY).unwrap();
    let now = SystemTime::now();
    let sound = server(authority.issue(&Role::party(0), DAY).unwrap());
    for (identity, said) in [
        (authority.issue_for_period(&alice(), now - 2 * DAY, DAY), "expired or is not valid yet"),
        (authority.issue_for_period(&alice(), now + DAY, DAY), "expired or is not valid yet"),
    ] {
        let text = refusal(&client(identity.unwrap()), &sound);
        assert!(text.contains(said) && text.contains("clock"), "{text}");
    }
    let text = refusal(&client(other.issue(&alice(), DAY).unwrap()), &sound);
    assert!(text.contains("another authority"), "{text}");
    let good = client(authority.issue(&alice(), DAY).unwrap());
    for (identity, said) in [
        (authority.issue_for_period(&Role::party(0), now - 5 * DAY, DAY), "expired 4 days ago"),
        (
            authority.issue_for_period(&Role::party(0), now + 5 * DAY, DAY),
            "not valid yet, for 4 days",
        ),
        (authority.issue(&Role::party(2), DAY), "is of party-2 and not of party-0"),
        (other.issue(&Role::party(0), DAY), "another authority"),
    ] {
        let text = refusal(&good, &server(identity.unwrap()));
        assert!(text.contains(said), "{said:?} is not in: {text}");
    }
}

#[test]
fn a_party_whose_certificate_is_wrong_is_named_with_the_cause_at_both_ends() {
    let authority = Authority::generate(DAY).unwrap();
    let old = SystemTime::now() - 3 * DAY;
    let identities = [
        authority.issue(&Role::party(0), DAY).unwrap(),
        authority.issue_for_period(&Role::party(1), old, DAY).unwrap(),
    ];
    let limits = net::Limits { start: Duration::from_secs(1), ..net::Limits::default() };
    let mut endpoints = identities.map(|identity| {
        let settings = Settings::new(Security::Tls(identity)).limits(limits.clone());
        Endpoint::open(settings.listen("127.0.0.1:0".parse().unwrap()).unwrap()).unwrap()
    });
    let peers = endpoints.each_ref().map(|endpoint| endpoint.address().unwrap());
    endpoints.iter_mut().for_each(|endpoint| endpoint.set_peers(peers).unwrap());
    // The refused party gives up at once, before the other has started a session.
    let start = |endpoint: &Endpoint| endpoint.session(&Job::new("x").parties(2)).map(drop);
    let [second, first] =
        [&endpoints[1], &endpoints[0]].map(|endpoint| start(endpoint).unwrap_err().to_string());
    assert!(first.contains("party 1") && first.contains("expired 2 days ago"), "{first}");
    assert!(second.contains("this side's certificate has expired"), "{second}");
}

#[test]
fn a_revoked_client_is_shut_out_at_once_and_nobody_else() {
    let authority = Authority::generate(DAY).unwrap();
    let identity = authority.issue(&Role::party(0), DAY).unwrap();
    let [stolen, fresh] = [(); 2].map(|()| authority.issue(&alice(), DAY).unwrap());
    let bob = authority.issue(&Role::client("bob").unwrap(), DAY).unwrap();
    let list = |serials: &[Serial]| authority.revocation_list(serials, 1).unwrap();
    let server = server(identity.clone().revoked(&list(&[])));
    let thief = client(stolen.clone());
    let (mut bobs_end, mut bobs) = channel(&server, &client(bob));
    let (thiefs_end, mut thiefs) = channel(&server, &thief);
    assert!(passes(&mut bobs, &mut bobs_end));
    let serial = Serial::of_pem(stolen.certificate_pem()).unwrap();
    server.set_identity(&identity.revoked(&list(&[serial]))).unwrap();
    let text = thiefs.receive(SOON).unwrap_err().to_string();
    assert!(text.contains("client alice has a certificate that has been revoked"), "{text}");
    assert!(thiefs_end.is_over());
    assert!(passes(&mut bobs, &mut bobs_end) && passes(&mut bobs_end, &mut bobs));
    let text = refusal(&thief, &server);
    assert!(text.contains("this side's certificate has been revoked"), "{text}");
    // A new certificate of the same name is another matter.
    channel(&server, &client(fresh));
}

#[test]
fn an_expired_certificate_is_replaced_without_a_restart() {
    let authority = Authority::generate(DAY).unwrap();
    let old = SystemTime::now() - 2 * DAY;
    let identity = authority.issue_for_period(&Role::party(0), old, DAY).unwrap();
    let server = server(identity.clone());
    let alice = client(authority.issue(&alice(), DAY).unwrap());
    assert!(refusal(&alice, &server).contains("expired"));
    let renewed = authority.renew(identity.certificate_pem(), DAY).unwrap();
    let renewed =
        Identity::from_pem(identity.authority_pem(), &renewed.certificate_pem, identity.key_pem());
    server.set_identity(&renewed.unwrap()).unwrap();
    channel(&server, &alice);
    let other = authority.issue(&Role::party(1), DAY).unwrap();
    assert!(server.set_identity(&other).unwrap_err().to_string().contains("party-0"));
}

#[test]
fn a_list_of_another_authority_is_refused_and_changes_nothing() {
    let authority = Authority::generate(DAY).unwrap();
    let identity = authority.issue(&Role::party(0), DAY).unwrap();
    let server = server(identity.clone());
    let list = Authority::generate(DAY).unwrap().revocation_list(&[], 1).unwrap();
    for list in [list.as_str(), "nonsense"] {
        let error = server.set_identity(&identity.clone().revoked(list)).unwrap_err();
        assert!(error.to_string().contains("list of revoked certificates"), "{error}");
    }
    channel(&server, &client(authority.issue(&alice(), DAY).unwrap()));
}

#[test]
fn a_peer_is_found_at_any_of_its_names_addresses() {
    let authority = Authority::generate(DAY).unwrap();
    let mut endpoints =
        [0, 1].map(|party| server(authority.issue(&Role::party(party), DAY).unwrap()));
    let ports = endpoints.each_ref().map(|endpoint| endpoint.address().unwrap().port());
    // On many machines `localhost` has two addresses, of which the first does not listen here.
    let names = ports.map(|port| format!("localhost:{port}"));
    endpoints.iter_mut().for_each(|endpoint| endpoint.set_peers(&names).unwrap());
    let began = Instant::now();
    thread::scope(|scope| {
        for endpoint in &endpoints {
            scope.spawn(|| endpoint.session(&Job::new("x").parties(2)).unwrap().transport.close());
        }
    });
    assert!(began.elapsed() < SOON);
}
