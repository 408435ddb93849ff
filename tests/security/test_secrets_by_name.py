"""A project full of files with telling names: which of them are kept out of the store, and which are not."""

from __future__ import annotations

import time

import pytest
from thorough import depth

from shadowsnap.settings import Settings
from shadowsnap.snapshot.secrets import (
    NOT_SECRET_ENDINGS,
    SECRET_NAMES,
    SECRETS,
    is_secret,
    not_left_out,
    why_left_out,
)


def words(text: str) -> list[str]:
    return text.split()


KNOWN_TO_SCANNERS = words("""
.env .env.local .env.production .env.bak .env-prod .env_staging app.env .dev.vars .dev.vars.staging server.pem
tls.key private.p8 AuthKey_ABC123.p8 platform.pk8 codesign.pvk aws.keypair cert.p12 cert.pfx bundle.pkcs12
debug.jks cred.jceks trust.bks store.bcfks release.keystore putty.ppk jwt.private_key id_rsa id_dsa id_ecdsa
id_ecdsa_sk id_ed25519 id_ed25519_sk id_xmss
.ssh/id_work .npmrc.bak server.key~ credentials.json.old.1 id_rsa.bak id_rsa.old id_rsa_backup id_rsa-2023
id_ed25519.bak
id_ecdsa.old id_dsa_old deploy_rsa github_ed25519 host_ecdsa old_dsa .ssh/identity ssh_host_rsa_key
ssh_host_ed25519_key secring.gpg secring.pgp otr.private_key .config/sops/age/keys.txt krb5.keytab disk.bek
client.ovpn wg0.conf passwords.kdb passwords.kdbx vault.psafe3 my.agilekeychain my.opvault login.keychain
login.keychain-db default.keyring kdewallet.kwallet logins.json key3.db key4.db wallet.dat
UTC--2023-01-01T00-00-00Z--abc .config/solana/id.json .netrc _netrc .authinfo .authinfo.gpg .pgpass
pgpass.conf .my.cnf .mylogin.cnf .htpasswd .htdigest proftpdpasswd etc/shadow etc/gshadow .vnc/passwd
.git-credentials .config/git/credentials .config/gh/hosts.yml .config/github-copilot/apps.json .oci/config
.rclone.conf .consul-token .config/stripe/config.toml .local/share/opencode/auth.json firebase-adminsdk-x.json
.config/glab-cli/config.yml .config/hub .npmrc
.yarnrc.yml .pypirc .gem/credentials .cargo/credentials .cargo/credentials.toml .m2/settings.xml
.m2/settings-security.xml .composer/auth.json .config/composer/auth.json .docker/config.json .dockercfg
.dockerconfigjson containers/auth.json .kube/config kubeconfig kubeconfig.yaml kubeconfig-prod prod.kubeconfig
prod-kubeconfig etc/kubernetes/admin.conf .aws/credentials aws_credentials rootkey.csv bob_accessKeys.csv
.s3cfg .boto .passwd-s3fs passwd-s3fs rclone.conf .config/gcloud/credentials.db
.config/gcloud/access_tokens.db application_default_credentials.json service-account.json
service-account-prod.json service_account.json serviceAccountKey.json gcloud-service-key.json
shop-firebase-adminsdk-x1y2z.json client_secret.json client_secret_123.apps.googleusercontent.com.json
client_secrets.json client-secret.json .azure/accessTokens.json .azure/msal_token_cache.json
.azure/msal_token_cache.bin .azure/service_principal_entries.json site.publishsettings prod.pubxml.user
terraform.tfstate terraform.tfstate.backup terraform.tfstate.1699.backup .terraform.tfstate.lock.info
terraform.tfvars prod.auto.tfvars prod.tfvars.json .terraformrc terraform.rc
.terraform.d/credentials.tfrc.json .vault-token .vault_pass .vault-pass .vault_pass.txt .vault_password
vault_pass.txt .databrickscfg .edgerc .tugboat .bluemix/config.json .config/doctl/config.yaml
.config/hcloud/cli.toml .config/scw/config.yaml .fly/config.yml .snowsql/config .snowflake/connections.toml
.dbt/profiles.yml .sentryclirc .circleci/cli.yml .travis/config.yml ngrok.yml kaggle.json .huggingface/token
.cache/huggingface/token .codex/auth.json .claude/.credentials.json credentials.json credentials.yml
credentials.yaml credentials.xml credentials.toml credentials.ini credentials.csv .credentials
gcp-credentials.json google_credentials.json firebase.credentials.json secrets.yml secrets.yaml secrets.json
secrets.toml .streamlit/secrets.toml secrets.properties .secrets secret_token.rb keystore.properties
key.properties sftp-config.json .vscode/sftp.json .ftpconfig .remote-sync.json .ftppass .idea/webServers.xml
filezilla.xml sitemanager.xml recentservers.xml WinSCP.ini robomongo.json dbeaver-data-sources.xml
.dbeaver-data-sources.xml credentials-config.json .msmtprc .fetchmailrc .smbcredentials
jenkins.plugins.publish_over_ssh.BapSshPublisherPlugin.xml .purple/accounts.xml .irssi/config bitcoin.conf
ventrilo_srv.ini .bash_history .zsh_history .mysql_history .psql_history .python_history .irb_history
.node_repl_history .rediscli_history
""")

# Scanners list these too. They hold code or settings first, and a password only where somebody put one.
CODE_FIRST = words("""
settings.py local_settings.py wp-config.php config.php config.inc.php configuration.php LocalSettings.php
database.yml application.properties appsettings.json web.config schema.rb knife.rb carrierwave.rb omniauth.rb
mongoid.yml .bashrc .zshrc .profile .bash_profile .bash_aliases .envrc .gitconfig .ssh/config .ssh/known_hosts
.ssh/authorized_keys .muttrc .tmux.conf debug.log dump.sql db.sqlite capture.pcap ledger.gnucash server.crt
server.cer chain.der signed.asc app.mobileprovision google-services.json pip.conf nuget.config Favorites.plist
journal.txt heroku.json .bundle/config
""")

ORDINARY = words("""
main.py index.ts README.md Makefile LICENSE package.json package-lock.json tsconfig.json Cargo.toml go.sum
locales/en/auth.json config.json config docker/config.json hosts.yml credentials.py credentials
credentials_test.go secrets.py secrets.rs secrets/README.md token.go tokens.json tokenizer.json keys.py
keyboard.ts monkey key keystore.ts pem environment.ts env env.py .envrc id_map.py id_token.go identity
identity.rs idea.txt kube/config.yaml password.tsx password_reset.html passwd.c vault.hcl main.tf variables.tf
versions.tf outputs.tf service.json service-worker.js client.json client_secret.go x.tfplan terraform.md
rsa.py rsa .prettierrc .yarnrc .babelrc .dockerignore Dockerfile x.env.ts history.py profile.yml git/config
gh/config.yml aws/config.yml credentials.json/README.txt .aws/README .kube/config.d/notes .env.example
.env.sample .env.template .env.dist .env.defaults .env-example .env_example example.env key.md id_rsa.pub
id_ed25519.pub ID_RSA.PUB deploy_rsa.pub host.pem.example service-account.example.json
terraform.tfvars.example secrets.yaml.example .npmrc.sample credentials.json.template cert.pem.tpl
""")


def test_scanners_and_this_list_agree_on_enough_names() -> None:
    assert len(set(KNOWN_TO_SCANNERS)) >= 131


@pytest.mark.parametrize("below", ["", "deep/er/"])
@pytest.mark.parametrize(
    ("names", "expected"),
    [(KNOWN_TO_SCANNERS, True), (CODE_FIRST, False), (ORDINARY, False)],
    ids=["secret", "code", "ordinary"],
)
def test_a_name_says_whether_it_is_a_secret(below: str, names: list[str], expected: bool) -> None:
    wrong = [name for name in names if is_secret((below + name).encode()) is not expected]
    wrong += [name for name in names if is_secret((below + name).upper().encode()) is not expected]
    assert not wrong


@pytest.mark.parametrize("pattern", SECRET_NAMES)
def test_every_pattern_is_found_although_patterns_are_looked_up_by_parts(pattern: str) -> None:
    for filling in ("", "x", "some.thing"):
        assert is_secret(pattern.replace("*", filling).encode()) or filling == ""
        assert is_secret(b"below/" + pattern.replace("*", "x").encode())


def test_every_row_gives_a_reason_and_no_pattern_stands_there_twice() -> None:
    assert all(row.reason and row.patterns == row.patterns.lower() for row in SECRETS)
    assert len(set(SECRET_NAMES)) == len(SECRET_NAMES)
    for ending in NOT_SECRET_ENDINGS:
        assert not is_secret(f".env.x{ending}".encode())


def test_a_pattern_with_a_slash_begins_where_a_directory_begins() -> None:
    assert is_secret(b"x/.aws/credentials") and is_secret(b".aws/credentials")
    assert not is_secret(b"x.aws/credentials") and not is_secret(b".aws/x/credentials")
    assert not is_secret(b"credentials") and not is_secret(b"/credentials")


def test_many_names_at_once_are_judged_as_each_is_alone() -> None:
    ordinary = [b"main.c", b"a/b/main.c"]
    odd = [
        b".env", b"x/.git/config", b".gitignore", b"a/../b", b"a//b", b"digits", b"a\\b", b"\xc3\xa9", b"n" * 2000,
        b"/".join([b"deep"] * 300), b".", b"", b"x/",
    ]  # fmt: skip
    for paths in ([], ordinary, odd, *([*ordinary, each] for each in odd)):
        expected = [path for path in paths if why_left_out(path, Settings()) is None]
        assert not_left_out(paths, Settings()) == expected


def test_names_that_are_no_text_are_names_too() -> None:
    assert is_secret(b"\xff\xfe.pem") and not is_secret(b"\xff\xfe") and not is_secret(b"")


# --- exceptions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exception", "captured", "not_captured"),
    [
        ("secrets.yaml", "secrets.yaml config/Secrets.YAML", "secrets.yml .env x-secrets.pem"),
        ("*.pem", "a.pem deep/b.pem", "a.key a.pem.key"),
        ("test/*.pem", "test/a.pem x/test/b.pem", "a.pem test/deep/a.pem attest/a.pem"),
        ("/fixtures/*.key", "fixtures/a.key", "x/fixtures/a.key fixtures/x/a.key"),
        ("/.npmrc", ".npmrc", "web/.npmrc"),
        ("*", ".env deep/id_rsa", ""),
        ("a*b*c.env", "abc.env axxbyyc.env", "acb.env c.env"),
        ("", "", ".env"),
        ("[.]env", "", ".env"),
    ],
)
def test_the_persons_exceptions_are_captured_all_the_same(
    exception: str, captured: str, not_captured: str
) -> None:
    exceptions = ("unrelated.xyz", exception)
    assert [name for name in captured.split() if is_secret(name.encode(), exceptions)] == []
    assert [name for name in not_captured.split() if not is_secret(name.encode(), exceptions)] == []


def test_an_exception_holds_for_its_own_call_alone() -> None:
    for number in range(50):
        assert not is_secret(b"%d.pem" % number, (f"{number}.pem",))
        assert is_secret(b"%d.pem" % number, (f"{number + 1}.pem",))
    assert is_secret(b"1.pem")


# --- time -------------------------------------------------------------------------------------------------


def fastest(path: bytes, exceptions: tuple[str, ...] = ()) -> float:
    times = []
    for _ in range(5):  # of its own time: other work on the machine does not count
        start = time.process_time()
        for _ in range(depth(5, 20)):
            is_secret(path, exceptions)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    "piece", ["a", "/", "a/", ".env", "service-account", "-firebase-adminsdk-", ".tfstate", "*", ".aws/", ".bak"]
)
def test_a_path_of_twice_the_length_takes_no_more_than_twice_the_time(piece: str) -> None:
    exceptions = ("*a*a*a*a*a*a*b.json", "*e*n*v*x/*.json", "a/*a*a*a*")
    size = depth(80_000, 200_000) // len(piece)
    for ending in (".json", "", "/.env", "_rsa"):
        short, long = (piece * count + ending for count in (size, 4 * size))
        assert fastest(long.encode(), exceptions) < 4 * 3 * fastest(short.encode(), exceptions) + 0.01


def test_ordinary_paths_cost_next_to_nothing() -> None:
    paths = [b"src/components/widgets/button%d.tsx" % number for number in range(20_000)]
    start = time.process_time()
    assert not any(map(is_secret, paths))
    assert time.process_time() - start < 20_000 * 5e-6  # it takes 0.4 us each; machines that run tests are busy
