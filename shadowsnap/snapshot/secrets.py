"""Files that are secrets according to their names. They are not captured, and listed as skipped.

The table has only names of files that exist to hold a key or a password. Files that hold code and sometimes a
password too (`settings.py`, `wp-config.php`, `.bashrc`, `database.yml`) are captured: not being able to restore
them would be the greater harm.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shadowsnap.git.trees import are_usual, path_problem
from shadowsnap.settings import Settings

VERSION = 3
"""The version of the table. After a change, the next capture lists every file again."""


class SecretName(NamedTuple):
    patterns: str
    """Separated by spaces. `*` matches any characters but a slash. A pattern with a slash matches the end of a
    path, one without matches the file's name. Case is ignored."""
    reason: str


SECRETS = (
    SecretName(".env .env.* .env-* .env_* *.env .dev.vars .dev.vars.*", "environment variables of an application"),
    SecretName("*.pem *.key *.p8 *.pk8 *.pvk *.keypair *.private_key", "private key"),
    SecretName("*.p12 *.pfx *.pkcs12", "private key with its certificate"),
    SecretName("*.jks *.jceks *.bks *.bcfks *.keystore", "Java or Android key store"),
    SecretName("*.ppk", "PuTTY private key"),
    SecretName("id_rsa id_rsa.* id_rsa-* id_rsa_* *_rsa", "SSH private key or a backup of one"),
    SecretName("id_dsa id_dsa.* id_dsa-* id_dsa_* *_dsa", "SSH private key or a backup of one"),
    SecretName("id_ecdsa id_ecdsa.* id_ecdsa-* id_ecdsa_* *_ecdsa", "SSH private key or a backup of one"),
    SecretName("id_ed25519 id_ed25519.* id_ed25519-* id_ed25519_* *_ed25519",
               "SSH private key or a backup of one"),
    SecretName("id_xmss .ssh/identity .ssh/id_* ssh_host_*_key", "SSH private key"),
    SecretName("secring.gpg secring.pgp otr.private_key", "private keys of GnuPG or OTR"),
    SecretName("sops/age/keys.txt", "private keys of age, for sops"),
    SecretName("*.keytab", "Kerberos keys"),
    SecretName("*.bek", "BitLocker recovery key"),
    SecretName("*.ovpn wg0.conf", "VPN configuration with its keys"),
    SecretName("*.kdb *.kdbx *.psafe3 *.agilekeychain *.opvault", "database of a password manager"),
    SecretName("*.keychain *.keychain-db *.keyring *.kwallet", "key ring of a desktop"),
    SecretName("logins.json key3.db key4.db", "passwords kept by a browser"),
    SecretName("wallet.dat utc--* solana/id.json", "wallet of a cryptocurrency"),
    SecretName(".netrc _netrc .authinfo .authinfo.gpg", "logins for machines"),
    SecretName(".pgpass pgpass.conf .my.cnf .mylogin.cnf", "database passwords"),
    SecretName(".htpasswd .htdigest proftpdpasswd etc/shadow etc/gshadow .vnc/passwd", "password hashes"),
    SecretName(".git-credentials git/credentials gh/hosts.yml glab-cli/config.yml .config/hub "
               "github-copilot/hosts.json github-copilot/apps.json", "git host logins"),
    SecretName(".npmrc .yarnrc.yml .pypirc", "tokens for a package registry"),
    SecretName(".gem/credentials .cargo/credentials .cargo/credentials.toml", "tokens for a package registry"),
    SecretName(".m2/settings.xml .m2/settings-security.xml composer/auth.json .composer/auth.json",
               "tokens for a package registry"),
    SecretName(".docker/config.json .dockercfg .dockerconfigjson containers/auth.json helm/registry/config.json",
               "logins for a container registry"),
    SecretName(".kube/config kubeconfig kubeconfig.* kubeconfig-* *.kubeconfig *-kubeconfig kubernetes/admin.conf",
               "access to a Kubernetes cluster"),
    SecretName(".aws/credentials aws_credentials rootkey.csv *_accesskeys.csv", "AWS keys"),
    SecretName(".s3cfg .boto .passwd-s3fs passwd-s3fs rclone.conf .rclone.conf", "keys for cloud storage"),
    SecretName("gcloud/credentials.db gcloud/access_tokens.db gcloud-service-key.json *-firebase-adminsdk-*.json "
               "firebase-adminsdk*.json",
               "Google Cloud credentials"),
    SecretName("service-account*.json service_account*.json serviceaccount*.json", "key of a service account"),
    SecretName("client_secret*.json client-secret*.json", "secret of an OAuth client"),
    SecretName(".azure/accesstokens.json .azure/msal_token_cache.* .azure/service_principal_entries.json "
               "*.publishsettings *.pubxml.user", "Azure credentials"),
    SecretName("*.tfstate* *.tfvars *.tfvars.json", "Terraform state or variables, with secrets as plain text"),
    SecretName(".terraformrc terraform.rc *.tfrc.json", "Terraform Cloud tokens"),
    SecretName(".vault-token .consul-token .nomad-token .vault_pass .vault-pass .vault_pass.txt "
               ".vault_password vault_pass.txt",
               "token or password of a vault"),
    SecretName(".databrickscfg .edgerc .tugboat .bluemix/config.json doctl/config.yaml hcloud/cli.toml "
               "scw/config.yaml com.vercel.cli/auth.json .netlify/config.json .fly/config.yml "
               ".railway/config.json .oci/config .aliyun/config.json .config/stripe/config.toml "
               ".wrangler/config/default.toml", "login of a cloud's command line"),
    SecretName(".snowsql/config .snowflake/connections.toml .dbt/profiles.yml", "login for a data warehouse"),
    SecretName(".sentryclirc .circleci/cli.yml .travis/config.yml ngrok.yml .ngrok2/ngrok.yml",
               "token of a developer service"),
    SecretName("kaggle.json huggingface/token .huggingface/token .codex/auth.json .gemini/oauth_creds.json "
               ".credentials.json opencode/auth.json",
               "token of a model host or an agent"),
    SecretName("credentials.json credentials.yml credentials.yaml credentials.xml credentials.toml "
               "credentials.ini credentials.csv credentials.db .credentials *-credentials.json "
               "*_credentials.json *.credentials.json",
               "credentials, by its own name"),
    SecretName("secrets.yml secrets.yaml secrets.json secrets.toml secrets.ini secrets.properties .secrets "
               ".secrets.toml secret_token.rb", "secrets, by its own name"),
    SecretName("keystore.properties key.properties", "password of an Android key store"),
    SecretName("sftp-config.json .vscode/sftp.json .ftpconfig .remote-sync.json .ftppass .idea/webservers.xml",
               "server passwords kept by an editor"),
    SecretName("filezilla.xml sitemanager.xml recentservers.xml winscp.ini",
               "passwords kept by a file transfer program"),
    SecretName("robomongo.json dbeaver-data-sources.xml .dbeaver-data-sources.xml credentials-config.json",
               "passwords kept by a database program"),
    SecretName("jenkins.plugins.publish_over_ssh.bapsshpublisherplugin.xml", "Jenkins logins"),
    SecretName(".msmtprc .fetchmailrc .smbcredentials .purple/accounts.xml .irssi/config",
               "passwords of a mail, chat or file service"),
    SecretName("bitcoin.conf ventrilo_srv.ini", "server configuration that is made of passwords"),
    SecretName(".bash_history .zsh_history .sh_history .mysql_history .psql_history .python_history .irb_history "
               ".node_repl_history .rediscli_history", "typed commands, passwords among them"),
)  # fmt: skip

SECRET_NAMES = tuple(pattern for row in SECRETS for pattern in row.patterns.split())
NOT_SECRET_ENDINGS = (
    ".example", "-example", "_example", ".sample", "-sample", ".template", "-template", ".dist", ".defaults",
    ".tpl", ".md", ".pub", ".example.json", ".sample.json", ".template.json",
)  # fmt: skip
"""Examples hold no values, and `id_rsa.pub` is the public half of a key."""
BACKUP_ENDINGS = (".bak", ".backup", ".old", ".orig", ".save", ".swp", "~", " (copy)", ".copy", ".1", ".2")
"""A copy of a secret is one, whatever an editor or a person called it."""
_MOST_BACKUPS = 3


def is_secret(path: bytes, exceptions: tuple[str, ...] = ()) -> bool:
    """Whether a path is a secret according to its name. `exceptions` are patterns of files that the user wants
    captured nevertheless, in the same syntax; a leading slash anchors one at the project's root."""
    name = path.rpartition(b"/")[2].lower()
    for _ in range(_MOST_BACKUPS):
        if not (name[-2:] in _BACKUP_KEYS or name[-1:] == b"~") or not name.endswith(_BACKUP_ENDINGS):
            break
        ending = max((each for each in _BACKUP_ENDINGS if name.endswith(each)), key=len)
        path, name = path[: -len(ending)], name[: -len(ending)]
    if (
        name not in _by_name
        and name[-_KEY:] not in _by_ending
        and name[:_KEY] not in _by_beginning
        and name.find(_CONTENT) < 0
    ):
        return False
    path = path.lower()
    return _is_listed(path, name) and not (exceptions and _is_exception(path, exceptions))


def is_left_out(path: bytes, settings: Settings) -> bool:
    """Whether a file is left out because of its name."""
    return not settings.include_secrets and is_secret(path, settings.capture_secrets)


def why_left_out(path: bytes, settings: Settings) -> str | None:
    """Why a file is left out because of its name, `unstorable` or `secret`; None if it is not."""
    if path_problem(path) is not None:
        return "unstorable"
    return "secret" if is_left_out(path, settings) else None


def not_left_out(paths: list[bytes], settings: Settings) -> list[bytes]:
    """The files that are not left out because of their names: those for which `why_left_out` is None."""
    if paths and not are_usual(*paths):
        paths = [path for path in paths if path_problem(path) is None]
    return [path for path in paths if not is_left_out(path, settings)]


def _is_listed(path: bytes, name: bytes) -> bool:
    if name.endswith(_NOT_ENDINGS) or name == b"example.env":
        return False
    for patterns in (
        _by_name.get(name, ()),
        _by_ending.get(name[-_KEY:], ()),
        _by_beginning.get(name[:_KEY], ()),
        _by_content[_CONTENT],
    ):
        for literal, pattern in patterns:
            if literal in name and pattern.matches(path):
                return True
    return False


def _is_exception(path: bytes, exceptions: tuple[str, ...]) -> bool:
    return any(pattern.matches(path) for pattern in _compile(exceptions))


@lru_cache(maxsize=16)
def _compile(patterns: tuple[str, ...]) -> list[_Pattern]:
    return [_Pattern(text) for text in patterns]


class _Pattern:
    """A pattern, split into path components, and these at their stars."""

    def __init__(self, text: str) -> None:
        wanted = text.encode("utf-8", "surrogateescape").lower()
        self.is_anchored = wanted.startswith(b"/")
        self.components = [component.split(b"*") for component in wanted.strip(b"/").split(b"/")]

    def matches(self, path: bytes) -> bool:
        """Whether a path in lower case matches, or its end if the pattern is not anchored."""
        count = len(self.components)
        if count == 1 and not self.is_anchored:
            return _fits(path[path.rfind(b"/") + 1 :], self.components[0])
        found = path.split(b"/") if self.is_anchored else path.rsplit(b"/", count)[-count:]
        return len(found) == count and all(map(_fits, found, self.components))


def _fits(name: bytes, parts: list[bytes]) -> bool:
    """Whether a name consists of these parts with anything in between. Since `*` is the only wildcard, the first
    occurrence of each part is enough: there is no backtracking, and no name makes this slow."""
    if len(parts) == 1:
        return name == parts[0]
    at, end = len(parts[0]), len(name) - len(parts[-1])
    if at > end or not name.startswith(parts[0]) or not name.endswith(parts[-1]):
        return False
    for part in parts[1:-1]:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


# Each pattern is filed under something that every matching name has. An ordinary path then costs a few lookups,
# however many patterns there are.
_Table = dict[bytes, list[tuple[bytes, _Pattern]]]
_KEY = 3
_by_name: _Table = {}
_by_beginning: _Table = {}
_by_ending: _Table = {}
_by_content: _Table = {}


def _file_patterns() -> None:
    for text in SECRET_NAMES:
        pattern = _Pattern(text)
        parts = pattern.components[-1]
        longest = max(parts, key=len)
        if len(parts) == 1:
            table, key = _by_name, longest
        elif len(parts[0]) >= _KEY:
            table, key = _by_beginning, parts[0][:_KEY]
        elif len(parts[-1]) >= _KEY:
            table, key = _by_ending, parts[-1][-_KEY:]
        else:
            table, key = _by_content, longest
        table.setdefault(key, []).append((longest, pattern))


_file_patterns()
(_CONTENT,) = _by_content  # searched for in every name, so there must be only one
_BACKUP_ENDINGS = tuple(ending.encode() for ending in BACKUP_ENDINGS)
_BACKUP_KEYS = frozenset(ending[-2:] for ending in _BACKUP_ENDINGS)
_NOT_ENDINGS = tuple(ending.encode() for ending in NOT_SECRET_ENDINGS)
