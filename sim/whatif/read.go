package whatif

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"seedlet.dev/core/document"
	"seedlet.dev/sim/plan"
)

// File is a file of manifests: YAML of any number of documents, or JSON.
type File struct {
	Name string
	Data []byte
}

// Input is what is simulated.
type Input struct {
	Workloads []*Workload
	Objects   []plan.Object // ConfigMaps, Secrets and others that the simulated API server has
	// Notes are lines for the user, as about objects that are ignored.
	Notes []string
	Node  Node

	entries []behaviourEntry // of the behaviour file
}

// source is one object of a file.
type source struct {
	at   string // file and document
	doc  []byte // JSON
	meta typeAndName
}

type typeAndName struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// errorf returns an error that names the file, the document and its object.
func (s *source) errorf(format string, args ...any) error {
	object := strings.TrimSpace(s.meta.Kind + " " + s.meta.Metadata.Name)
	if object != "" {
		object = " (" + object + ")"
	}
	return fmt.Errorf("%s%s: %w", s.at, object, fmt.Errorf(format, args...))
}

// Read returns the workloads and objects of files. An error is one line that names the file, the
// document and the field.
func Read(files []File) (*Input, error) {
	in := &Input{}
	ignored := map[string]int{}
	for _, f := range files {
		sources, err := documents(f)
		if err != nil {
			return nil, err
		}
		for i := range sources {
			if err := in.add(&sources[i], ignored); err != nil {
				return nil, err
			}
		}
	}
	if len(in.Workloads) == 0 {
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		return nil, fmt.Errorf("%s: want at least one of %s, have none", strings.Join(names, ", "),
			strings.Join(workloadKinds, ", "))
	}
	in.noteIgnored(ignored)
	return in, in.checkNames()
}

// noteIgnored adds one line about the objects that are ignored.
func (in *Input) noteIgnored(ignored map[string]int) {
	var kinds []string
	for kind, n := range ignored { //ordered: sorted below
		if n > 1 {
			kind = fmt.Sprintf("%s (%d)", kind, n)
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	if len(kinds) > 0 {
		in.Notes = append(in.Notes, "ignored: "+strings.Join(kinds, ", "))
	}
}

// documents returns the objects of a file. The items of lists are objects.
func documents(f File) ([]source, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.Data)))
	var all []source
	for n := 1; ; {
		data, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		s := source{at: fmt.Sprintf("%s: document %d", f.Name, n)}
		if err != nil {
			return nil, s.errorf("%w", err)
		}
		if s.doc, err = document.Parse(data); err != nil {
			return nil, s.errorf("%w", err)
		}
		if s.doc == nil {
			continue // nothing but comments
		}
		n++
		items, err := s.items()
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
}

// items returns the items of a list, or the object itself.
func (s *source) items() ([]source, error) {
	if err := json.Unmarshal(s.doc, &s.meta); err != nil {
		return nil, s.errorf("want an object with apiVersion, kind and metadata: %w", err)
	}
	switch {
	case s.meta.Kind == "":
		return nil, s.errorf("kind: want a kind, have none")
	case s.meta.APIVersion == "":
		return nil, s.errorf("apiVersion: want a version, have none")
	case s.meta.Kind != "List" && !strings.HasSuffix(s.meta.Kind, "List"):
		return []source{*s}, nil
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(s.doc, &list); err != nil {
		return nil, s.errorf("items: %w", err)
	}
	var all []source
	for i, item := range list.Items {
		inner := source{at: fmt.Sprintf("%s: items[%d]", s.at, i), doc: item}
		objects, err := inner.items()
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// objectKinds are the kinds that the simulated API server has beside those of workloads.
var objectKinds = []string{"ConfigMap", "Secret", "RuntimeClass"}

// add adds one object to the input.
func (in *Input) add(s *source, ignored map[string]int) error {
	kind := s.meta.Kind
	if slices.Contains(workloadKinds, kind) {
		w, err := in.workload(s)
		if err != nil {
			return err
		}
		in.Workloads = append(in.Workloads, w)
		return nil
	}
	if !slices.Contains(objectKinds, kind) {
		ignored[kind]++
		return nil
	}
	if s.meta.Metadata.Name == "" {
		return s.errorf("metadata.name: want a name, have none")
	}
	o := plan.Object{Name: strings.Join([]string{kind, namespaceOf(s.meta.Metadata.Namespace),
		s.meta.Metadata.Name}, "/")}
	if err := json.Unmarshal(s.doc, &o.Manifest); err != nil {
		return s.errorf("%w", err)
	}
	if _, err := o.Decode(); err != nil {
		return s.errorf("%w", err)
	}
	if slices.ContainsFunc(in.Objects, func(x plan.Object) bool { return x.Name == o.Name }) {
		return s.errorf("metadata.name: another document has the same %s", kind)
	}
	in.Objects = append(in.Objects, o)
	return nil
}

func namespaceOf(name string) string {
	if name == "" {
		return metav1.NamespaceDefault
	}
	return name
}

// checkNames checks that no two workloads or pods have the same name.
func (in *Input) checkNames() error {
	workloads, pods, total := map[string]bool{}, map[string]*Workload{}, 0
	for _, w := range in.Workloads {
		if workloads[w.String()] {
			return w.source.errorf("metadata.name: another document has the same %s", w.Kind)
		}
		workloads[w.String()] = true
		for i := range w.Pods {
			name := w.Pods[i].Name
			if other := pods[name]; other != nil {
				return w.source.errorf("metadata.name: its pod %s has the name of one of %s; pods of "+
					"the same name are not simulated, not even in two namespaces", name, other)
			}
			pods[name] = w
		}
		if total += len(w.Pods); total > podsMax {
			return w.source.errorf("%s: with this there are %d pods, one node takes %d",
				w.countField(), total, podsMax)
		}
	}
	return nil
}
