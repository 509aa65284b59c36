package access

import (
	"net/http"
	"strings"
)

// act is what somebody wants to do with a part of a Node.
type act struct{ node, verb, subresource string }

// verbs are what methods are called in rules. Others have no name, and rules for all verbs only.
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// parts are the subresources of a Node that paths are, the first that fits. Those of KEP-2862 were
// proxy before: who has that right has them all.
var parts = []struct {
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

// subresourcesOf are the subresources of which a right to one is enough for a path.
func subresourcesOf(path string) []string {
	for _, part := range parts {
		if path == part.path || strings.HasPrefix(path, part.path+"/") {
			return part.subresources
		}
	}
	return []string{"proxy"}
}
