package web

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// configz shows the configuration, as all Kubernetes components do, but for what may be secret.
func configz(c *kubeletconfig.KubeletConfiguration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		shown := c.DeepCopy()
		for name := range shown.StaticPodURLHeader {
			shown.StaticPodURLHeader[name] = []string{"<masked>"}
		}
		data, err := json.Marshal(map[string]any{"kubeletconfig": shown})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, data)
	}
}

// component is what the zpages call this program: a kubelet, whatever its name.
const component = "kubelet"

// listedPaths are what /statusz points to.
var listedPaths = []string{"/configz", "/debug", "/flagz", "/healthz", "/metrics", "/statusz"}

// handleZPages adds /flagz (KEP-4828) and /statusz (KEP-4827), unless their gates are off.
func handleZPages(mux *http.ServeMux, s Secure) {
	if on, set := s.Config.FeatureGates["ComponentFlagz"]; on || !set {
		flagz.Install(mux, component, flags(s.Flags))
	}
	if on, set := s.Config.FeatureGates["ComponentStatusz"]; on || !set {
		version := compatibility.NewEffectiveVersionFromString(s.Version, "", "")
		statusz.Install(mux, component,
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
		mux.HandleFunc(base, disabled("profiling endpoint is disabled."))
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

// serveVerbosity changes how much is logged.
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
	done, err := logs.GlogSetter(string(level))
	if err != nil {
		writeCode(w, http.StatusBadRequest, err.Error())
		return
	}
	writeCode(w, http.StatusOK, done)
}
