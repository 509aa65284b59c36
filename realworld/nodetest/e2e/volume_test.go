package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var volumeParts = []part{
	{"containers share an emptyDir on disk and in memory", false, testEmptyDirs},
	{"hostPath of every type", false, testHostPaths},
	{"a pod waits for a missing hostPath", true, testMissingHostPath},
	{"downwardAPI and projected files", true, testDownwardFiles},
	{"sub-paths and read-only mounts", true, testSubPaths},
	{"fsGroup owns the volumes", false, testFSGroup},
}

// testEmptyDirs has init containers write files that the main container reads.
func testEmptyDirs(t *testing.T, s *suite) {
	s.runPod(t, "emptydir", `
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  initContainers:
  - name: first
    image: sample
    args: [write, /disk/file, hello]
    volumeMounts: [{name: disk, mountPath: /disk}]
  - name: second
    image: sample
    args: [write, /memory/file, hello]
    volumeMounts: [{name: memory, mountPath: /memory}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /disk, /disk/file, /memory, /memory/file]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]`)
	r := s.waitReport(t, "emptydir", "main")
	for _, dir := range []string{"/disk", "/memory"} {
		if got := r.Paths[dir]; got.Mode != "dtrwxrwxrwx" && got.Mode != "drwxrwxrwx" {
			t.Errorf("%s is %+v", dir, got)
		}
		if got := r.Paths[dir+"/file"].Text; got != "hello\n" {
			t.Errorf("%s/file contains %q", dir, got)
		}
	}
	if !r.Paths["/memory"].Tmpfs || r.Paths["/disk"].Tmpfs {
		t.Errorf("volumes on tmpfs: disk %t, memory %t; want only memory", r.Paths["/disk"].Tmpfs,
			r.Paths["/memory"].Tmpfs)
	}
	uid := string(s.agent.servedPod(t, "emptydir").UID)
	const volumes = "volumes/kubernetes.io~empty-dir"
	data, err := os.ReadFile(filepath.Join(s.agent.rootDir, "pods", uid, volumes, "disk/file"))
	if err != nil || string(data) != "hello\n" {
		t.Errorf("on the node the file contains %q, %v", data, err)
	}
	s.agent.removeManifest(t, "emptydir")
	s.eventually(t, "the directories of emptydir are removed", func() bool {
		return s.isRemoved(t, "emptydir") && len(s.agent.podDirectories(t, uid)) == 0
	})
}

func testHostPaths(t *testing.T, s *suite) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.runPod(t, "hostpath", fmt.Sprintf(`
  volumes:
  - {name: any, hostPath: {path: %[1]s}}
  - {name: file, hostPath: {path: %[1]s/file, type: File}}
  - {name: newdir, hostPath: {path: %[1]s/new/dir, type: DirectoryOrCreate}}
  - {name: newfile, hostPath: {path: %[1]s/newfile, type: FileOrCreate}}
  - {name: device, hostPath: {path: /dev/null, type: CharDevice}}
  containers:
  - name: main
    image: sample
    args: [report, --stay, /any, /file, /newdir, /newfile, /device]
    volumeMounts:
    - {name: any, mountPath: /any}
    - {name: file, mountPath: /file}
    - {name: newdir, mountPath: /newdir}
    - {name: newfile, mountPath: /newfile}
    - {name: device, mountPath: /device}`, dir))
	r := s.waitReport(t, "hostpath", "main")
	if got := r.Paths["/any"].Entries; !slices.Contains(got, "file") {
		t.Errorf("the directory has the entries %q", got)
	}
	if got := r.Paths["/file"].Text; got != "of the host" {
		t.Errorf("the file contains %q", got)
	}
	for path, mode := range map[string]string{
		"/newdir": "drwxr-xr-x", "/newfile": "-rw-r--r--", "/device": "Dcrw-rw-rw-",
	} {
		if got := r.Paths[path].Mode; got != mode {
			t.Errorf("%s has mode %s, want %s", path, got, mode)
		}
	}
	s.execSample(t, "hostpath", "main", "write", "/any/back", "from the pod")
	data, err := os.ReadFile(filepath.Join(dir, "back"))
	if err != nil || string(data) != "from the pod\n" {
		t.Errorf("on the host the file contains %q, %v", data, err)
	}
	s.agent.removeManifest(t, "hostpath")
	s.eventually(t, "hostpath is removed", func() bool {
		return s.isRemoved(t, "hostpath")
	})
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("the removal of the pod removed a file of the host: %v", err)
	}
}

func testMissingHostPath(t *testing.T, s *suite) {
	path := filepath.Join(t.TempDir(), "late")
	s.runPod(t, "latepath", fmt.Sprintf(`
  volumes: [{name: late, hostPath: {path: %s, type: Directory}}]
  containers:
  - name: main
    image: sample
    args: [sleep]
    volumeMounts: [{name: late, mountPath: /late}]`, path))
	s.eventually(t, "the container is being created", func() bool {
		w := s.containerStatus(t, "latepath", "main").State.Waiting
		return w != nil && w.Reason == "ContainerCreating"
	})
	if got := s.containerLines(t, "latepath"); len(got) > 0 {
		t.Errorf("containers were created without the volume: %q", got)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the container runs once the directory exists", func() bool {
		return s.newestContainer(t, "latepath", "main").GetState() == running
	})
}

func testDownwardFiles(t *testing.T, s *suite) {
	s.runPod(t, "downward", `
  volumes:
  - name: info
    downwardAPI:
      defaultMode: 0440
      items:
      - {path: name, fieldRef: {fieldPath: metadata.name}}
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: deep/memory, resourceFieldRef: {containerName: main, resource: limits.memory}}
  - name: projected
    projected:
      sources:
      - downwardAPI: {items: [{path: space, fieldRef: {fieldPath: metadata.namespace}}]}
  containers:
  - name: main
    image: sample
    args: [report, --stay, /info/name, /info/labels, /info/deep/memory, /projected/space]
    resources: {limits: {memory: 64Mi}}
    volumeMounts: [{name: info, mountPath: /info}, {name: projected, mountPath: /projected}]`)
	r := s.waitReport(t, "downward", "main")
	for path, want := range map[string]string{
		"/info/name": "downward-e2e", "/info/labels": `app="downward"`,
		"/info/deep/memory": "67108864", "/projected/space": "default",
	} {
		if got := strings.TrimSuffix(r.Paths[path].Text, "\n"); got != want {
			t.Errorf("%s contains %q, want %q", path, got, want)
		}
	}
	if got := r.Paths["/info/name"].Mode; got != "-r--r-----" {
		t.Errorf("the mode of /info/name is %s, want that of defaultMode 0440", got)
	}
}

func testSubPaths(t *testing.T, s *suite) {
	s.runPod(t, "subpath", `
  volumes: [{name: disk, emptyDir: {}}]
  initContainers:
  - name: first
    image: sample
    args: [write, /disk/file, hello]
    volumeMounts: [{name: disk, mountPath: /disk}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /file, /sub, /named, /fixed, /fixed/file]
    env: [{name: ME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: disk, mountPath: /file, subPath: file}
    - {name: disk, mountPath: /sub, subPath: deep/er}
    - {name: disk, mountPath: /named, subPathExpr: "of-$(ME)"}
    - {name: disk, mountPath: /fixed, readOnly: true}`)
	r := s.waitReport(t, "subpath", "main")
	if got := r.Paths["/file"].Text; got != "hello\n" {
		t.Errorf("the file contains %q", got)
	}
	if r.Paths["/sub"].Mode == "" || r.Paths["/named"].Mode == "" {
		t.Errorf("the directories are %+v and %+v", r.Paths["/sub"], r.Paths["/named"])
	}
	want := []string{"deep", "file", "of-subpath-e2e"}
	if got := r.Paths["/fixed"]; !got.ReadOnly || !slices.Equal(got.Entries, want) {
		t.Errorf("the read-only mount is %+v, want the entries %q", got, want)
	}
	if r.Paths["/sub"].ReadOnly || r.Paths["/fixed/file"].Text != "hello\n" {
		t.Errorf("the sub-path is %+v, the read-only file %+v", r.Paths["/sub"],
			r.Paths["/fixed/file"])
	}
}

func testFSGroup(t *testing.T, s *suite) {
	s.runPod(t, "fsgroup", `
  securityContext: {runAsUser: 1000, fsGroup: 4000}
  volumes: [{name: disk, emptyDir: {}}]
  initContainers:
  - name: first
    image: sample
    args: [write, /disk/file, hello]
    volumeMounts: [{name: disk, mountPath: /disk}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /disk, /disk/file]
    volumeMounts: [{name: disk, mountPath: /disk}]`)
	r := s.waitReport(t, "fsgroup", "main")
	if !slices.Contains(r.Groups, 4000) {
		t.Errorf("the groups are %v", r.Groups)
	}
	if dir := r.Paths["/disk"]; dir.GID != 4000 || !strings.Contains(dir.Mode, "g") {
		t.Errorf("the volume is %+v", dir)
	}
	if file := r.Paths["/disk/file"]; file.UID != 1000 || file.GID != 4000 ||
		file.Text != "hello\n" {
		t.Errorf("the file is %+v", file)
	}
}
