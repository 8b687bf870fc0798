use super::*;

/// Every setting that a connection string can make.
const SETTINGS: &str = "user=u password=p dbname=d options=-cwork_mem=1MB application_name=a sslmode=disable \
     sslnegotiation=postgres channel_binding=disable connect_timeout=3 tcp_user_timeout=4 keepalives=1 \
     keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 load_balance_hosts=random";

fn config(hosts: &str) -> Config {
    format!("{SETTINGS} {hosts}").parse().unwrap()
}

#[test]
fn each_host_is_tried_with_all_settings() {
    let config_of_all = config("host=one,/two hostaddr=10.0.0.1,10.0.0.2 port=1,2 target_session_attrs=read-write");
    assert!(alone(&config_of_all, 0) == config("host=one hostaddr=10.0.0.1 port=1"));
    assert!(alone(&config_of_all, 1) == config("host=/two hostaddr=10.0.0.2 port=2"));
    assert!(alone(&config("host=one"), 0) == config("host=one port=5432"));
    assert!(alone(&config("hostaddr=10.0.0.1"), 0) == config("hostaddr=10.0.0.1 port=5432"));
    let bare: Config = "host=one".parse().unwrap();
    assert!(alone(&bare, 0) == "host=one port=5432".parse().unwrap());
}

fn hosts_of(hosts: &str) -> Vec<Host> {
    Host::all(&Database::from_config(config(hosts)).unwrap())
}

#[test]
fn a_certificate_has_to_be_for_the_name_and_only_without_one_for_the_number() {
    let names = |dsn: &str| {
        let hosts = Host::all(&Database::new(dsn).unwrap());
        hosts.iter().map(|host| host.config.get_hosts().to_vec()).collect::<Vec<_>>()
    };
    let tcp = |name: &str| vec![HostName::Tcp(name.to_owned())];
    assert_eq!(names("host=db1,10.0.0.9 hostaddr=10.0.0.1,10.0.0.2"), [tcp("db1"), tcp("10.0.0.9")]);
    assert_eq!(names("hostaddr=10.0.0.1,::1"), [tcp("10.0.0.1"), tcp("::1")]);
}

#[test]
fn a_host_is_named_as_the_settings_name_it() {
    let names = |hosts: &str| hosts_of(hosts).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names("host=one,/two port=1,2"), ["one:1", "/two:2"]);
    assert_eq!(names("host=one,two port=7"), ["one:7", "two:7"]);
    assert_eq!(names("host=one hostaddr=10.0.0.1"), ["10.0.0.1:5432"]);
}
