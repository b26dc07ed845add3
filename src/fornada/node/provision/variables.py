"""The environment variables of builds: a short list of what they may inherit, so that nothing else of the node reaches them.

uv with an empty environment fails at TLS, behind a proxy, and wherever an index is named by a variable; with the node's whole
environment it would obey whatever stands in the operator's shell.
"""

from collections.abc import Mapping
from pathlib import Path

from fornada.core.settings import ProvisionSettings
from fornada.node.provision.outbound import Proxies
from fornada.node.whole_path import whole_path

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
PLACES = ("LANG", "LC_ALL", "TZ", "NETRC")
UV = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_INDEX_STRATEGY"),
    *("UV_INSECURE_HOST", "UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT"),
    *("UV_HTTP_RETRIES", "UV_OFFLINE", "UV_EXCLUDE_NEWER", "UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_BUILDS", "UV_CONCURRENT_INSTALLS"),
    *("UV_TORCH_BACKEND", "UV_REQUEST_TIMEOUT"),
)
UV_CREDENTIALS = "UV_INDEX_"
"""UV_INDEX_<name>_USERNAME and _PASSWORD."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Variables:
    """Environments for each kind of build."""

    def __init__(self, inherited: Mapping[str, str], settings: ProvisionSettings, *, cache: Path, home: Path) -> None:
        """`inherited` is the node's environment, `cache` holds uv's and npm's caches, `home` is an empty folder of ours."""
        self._inherited = inherited
        self._settings = settings
        self.uv_cache = whole_path(settings.cache_dir) if settings.cache_dir else cache / "uv"
        self._npm_cache = cache / "npm"
        self._home = home
        self.offline = settings.offline
        self.search_path = inherited.get("PATH") or SEARCH_PATH

    def uv(self) -> dict[str, str]:
        """For uv: certificates, proxies and the index, the operator's and the machine's (pip's variables too)."""
        found = self._kept(*CERTIFICATES, *PROXIES, *PLACES, *UV)
        found.update({name: value for name, value in self._inherited.items() if name.startswith(UV_CREDENTIALS)})
        for name, value in self._of_pip().items():
            found.setdefault(name, value)
        found.update(self._of_settings(found))
        return {
            **found,
            "PATH": SEARCH_PATH,
            "HOME": str(self._home),
            "UV_CACHE_DIR": str(self.uv_cache),
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "hardlink",
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }

    def npm(self) -> dict[str, str]:
        """For `npm pack`."""
        found = self._kept(*CERTIFICATES, *PROXIES, *PLACES, "NODE_EXTRA_CA_CERTS")
        found.update({name: value for name, value in self._inherited.items() if name.lower().startswith("npm_config_")})
        return {
            **found,
            "PATH": self.search_path,
            "HOME": str(self._home),
            "npm_config_cache": str(self._npm_cache),
            "npm_config_ignore_scripts": "true",
            "npm_config_update_notifier": "false",
            "npm_config_fund": "false",
            "npm_config_audit": "false",
            "NO_COLOR": "1",
        }

    def script(self, *, temporary: Path) -> dict[str, str]:
        """For a model's own convert script: no index, no proxy, no home but an empty one."""
        return {
            **self._kept("LANG", "LC_ALL", "TZ"),
            "PATH": SEARCH_PATH,
            "HOME": str(temporary),
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "NO_COLOR": "1",
        }

    def hub(self) -> str:
        """Where `hf:` sources are asked."""
        return self._inherited.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"

    def proxies(self) -> Proxies:
        """For what the node fetches itself."""
        return Proxies(self._kept(*PROXIES))

    def _kept(self, *names: str) -> dict[str, str]:
        return {name: self._inherited[name] for name in names if name in self._inherited}

    def _of_pip(self) -> dict[str, str]:
        """pip's variables in uv's words. pip separates several values by spaces."""
        given = self._inherited
        found = {}
        if index := given.get("PIP_INDEX_URL"):
            if not any(name in given for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
                found["UV_DEFAULT_INDEX"] = index
        if extra := given.get("PIP_EXTRA_INDEX_URL"):
            if not any(name in given for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")):
                found["UV_INDEX"] = extra
        if links := given.get("PIP_FIND_LINKS"):
            found["UV_FIND_LINKS"] = ",".join(map(_absolute, links.split()))
        if given.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes", "on"):
            found["UV_NO_INDEX"] = "1"
        for pip, uv in (
            ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
            ("PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"),
            ("PIP_CERT", "SSL_CERT_FILE"),
        ):
            if value := given.get(pip):
                found[uv] = value
        if proxy := given.get("PIP_PROXY"):
            found["ALL_PROXY"] = proxy
        return found

    def _of_settings(self, found: Mapping[str, str]) -> dict[str, str]:
        result = {}
        if self._settings.index:
            result["UV_DEFAULT_INDEX"] = self._settings.index
        if self._settings.find_links:
            links = [_absolute(link) for link in self._settings.find_links]
            result["UV_FIND_LINKS"] = ",".join([*links, *filter(None, found.get("UV_FIND_LINKS", "").split(","))])
        if self._settings.offline:
            result["UV_OFFLINE"] = "1"
        return result


def _absolute(link: str) -> str:
    """A folder as an absolute path: a build runs in another one than the node."""
    return link if "://" in link else str(whole_path(link))
