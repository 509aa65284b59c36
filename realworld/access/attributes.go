package access

import (
	"net/http"
	"strings"
)

// attributes are those of an access to a subresource of a Node, as RBAC rules name them.
type attributes struct{ node, verb, subresource string }

// verbs maps HTTP methods to the verbs of RBAC rules. A method that is not listed has no verb: only
// a rule for all verbs allows it.
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// executingPaths are prefixes of paths that run something in a container or connect to it.
var executingPaths = []string{"/exec", "/attach", "/portForward", "/run"}

// verbOf returns the verb of a request. It is create for whatever runs something in a container,
// with every method: a WebSocket begins with a GET, and the right to get nodes/proxy, which
// monitoring agents have, must not be one to run commands. The kubelet has the verb of the method
// here; the API server's own identity has all verbs (the role system:kubelet-api-admin). See
// docs/differences.md.
func verbOf(method, path string) string {
	for _, executing := range executingPaths {
		if isBelow(path, executing) {
			return "create"
		}
	}
	return verbs[method]
}

// pathSubresources maps path prefixes to subresources of a Node; the first match counts. The paths
// of KEP-2862 belonged to proxy before it, so the right to proxy still allows them.
var pathSubresources = []struct {
	path         string
	subresources []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/pods", []string{"pods", "proxy"}},
	{"/runningpods", []string{"pods", "proxy"}},
	{"/healthz", []string{"healthz", "proxy"}},
	{"/configz", []string{"configz", "proxy"}},
}

// subresourcesOf returns the subresources that a path needs: the right to one of them is enough.
func subresourcesOf(path string) []string {
	for _, part := range pathSubresources {
		if isBelow(path, part.path) {
			return part.subresources
		}
	}
	return []string{"proxy"}
}

// isBelow reports whether a path is a folder or in it.
func isBelow(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (rest == "" || rest[0] == '/')
}
