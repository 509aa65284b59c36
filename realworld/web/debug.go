package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"net/url"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// configz serves the configuration, as all Kubernetes components do. The values of headers and the
// user and query of the manifest URL are masked: they may hold credentials.
func configz(c *kubeletconfig.KubeletConfiguration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		shown := c.DeepCopy()
		for name := range shown.StaticPodURLHeader {
			shown.StaticPodURLHeader[name] = []string{maskedText}
		}
		shown.StaticPodURL = maskURL(shown.StaticPodURL)
		data, err := json.Marshal(map[string]any{"kubeletconfig": shown})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, data)
	}
}

const maskedText = "<masked>"

// maskURL masks the parts of a URL that may hold credentials; all of it if it cannot be parsed.
func maskURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return maskedText
	}
	if u.User != nil {
		u.User = url.User("masked")
	}
	if u.RawQuery != "" {
		u.RawQuery = "masked"
	}
	return u.String()
}

// componentName is the name of this program on /statusz and /flagz: clients look for a kubelet.
const componentName = "kubelet"

// listedPaths are the paths that /statusz links to.
var listedPaths = []string{"/configz", "/debug", "/flagz", "/healthz", "/metrics", "/statusz"}

// handleZPages registers /flagz (KEP-4828) and /statusz (KEP-4827), unless their feature gates are
// off.
func handleZPages(mux *http.ServeMux, s Secure) {
	if on, set := s.Config.FeatureGates["ComponentFlagz"]; on || !set {
		flagz.Install(mux, componentName, flags(s.Flags))
	}
	if on, set := s.Config.FeatureGates["ComponentStatusz"]; on || !set {
		version := compatibility.NewEffectiveVersionFromString(s.Version, "", "")
		statusz.Install(mux, componentName,
			statusz.NewRegistry(version, statusz.WithListedPaths(listedPaths)))
	}
}

// flags is a flagz.Reader.
type flags map[string]string

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f }

func handleProfiles(mux *http.ServeMux, c *kubeletconfig.KubeletConfiguration) {
	const base = "/debug/pprof/"
	if !*c.EnableProfilingHandler {
		mux.HandleFunc(base, disabledHandler("profiling endpoint is disabled."))
		return
	}
	if c.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, base) {
		case "profile":
			pprof.Profile(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		case "cmdline":
			pprof.Cmdline(w, r)
		case "trace":
			pprof.Trace(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}

// verbosityMax is the most that a client can set: from 8 on client-go logs the bodies of requests
// and responses, and so the contents of Secrets, which other clients can read with nodes/log.
const verbosityMax = 7

// serveVerbosity sets the verbosity of the log (klog's -v).
func serveVerbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		writeCode(w, http.StatusNotAcceptable, "unsupported http method")
		return
	}
	level, err := io.ReadAll(r.Body)
	if err != nil {
		writeCode(w, http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	if v, err := strconv.ParseUint(string(level), 10, 32); err == nil && v > verbosityMax {
		writeCode(w, http.StatusBadRequest, fmt.Sprintf("at verbosity %d and above the contents of "+
			"Secrets are logged: set it with --v", verbosityMax+1))
		return
	}
	done, err := logs.GlogSetter(string(level))
	if err != nil {
		writeCode(w, http.StatusBadRequest, err.Error())
		return
	}
	writeCode(w, http.StatusOK, done)
}
