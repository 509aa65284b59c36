package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The functions of this file read and change manifests as they are in a file: maps that are not
// decoded yet, which may lack any field.

// ManifestName returns metadata.name of a manifest; empty if it has none, which is an error only
// when the manifest is decoded.
func ManifestName(manifest map[string]any) string {
	meta, _ := manifest["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}

// renamedManifest returns a copy of a manifest with another name.
func renamedManifest(manifest map[string]any, name string) map[string]any {
	c := cloneManifest(manifest)
	if meta, ok := c["metadata"].(map[string]any); ok {
		meta["name"] = name
	}
	return c
}

// numberUID replaces the end of a manifest's UID, if it has one, by a number.
func numberUID(manifest map[string]any, n int) {
	meta, _ := manifest["metadata"].(map[string]any)
	if uid, _ := meta["uid"].(string); len(uid) > 2 {
		meta["uid"] = fmt.Sprintf("%s%02d", uid[:len(uid)-2], n)
	}
}

func cloneManifest(m map[string]any) map[string]any {
	var c map[string]any
	data, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		panic("plan: cannot copy a manifest: " + err.Error())
	}
	return c
}

// containerFields returns the containers of a manifest, init containers first.
func containerFields(manifest map[string]any) []map[string]any {
	spec, _ := manifest["spec"].(map[string]any)
	var all []map[string]any
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, item := range list {
			if c, ok := item.(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

func containerNames(manifest map[string]any) []string {
	var names []string
	for _, c := range containerFields(manifest) {
		names = append(names, fmt.Sprint(c["name"]))
	}
	return names
}

// imageRefs returns the references of the images of a manifest's containers and volumes.
func imageRefs(manifest map[string]any) []string {
	var refs []string
	for _, c := range containerFields(manifest) {
		ref := fmt.Sprint(c["image"])
		if !strings.Contains(ref, "@") && !strings.Contains(lastPathPart(ref), ":") {
			ref += ":latest"
		}
		refs = append(refs, ref)
	}
	return append(refs, imageVolumeRefs(manifest)...)
}

// imageVolumeRefs returns the references of the images that the pod of a manifest mounts.
func imageVolumeRefs(manifest map[string]any) []string {
	spec, _ := manifest["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	var refs []string
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if source, ok := volume["image"].(map[string]any); ok {
			refs = append(refs, fmt.Sprint(source["reference"]))
		}
	}
	return refs
}

// lastPathPart returns the part of an image reference after the last slash.
func lastPathPart(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// imagePatch returns a patch that gives the containers of a pod another image.
func imagePatch(p *Pod, n int) map[string]any {
	var containers []any
	spec, _ := p.Manifest["spec"].(map[string]any)
	list, _ := spec["containers"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			containers = append(containers, map[string]any{
				"name": c["name"], "image": fmt.Sprintf("registry.test/other:%d", n)})
		}
	}
	return map[string]any{"spec": map[string]any{"containers": containers}}
}
