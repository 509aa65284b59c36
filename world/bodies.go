package world

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Every body there is, by name, so that one recorder, one replayer, one hash and one trace serve
// all ports.

// plainBodies are the bodies that are not protobuf messages, with the port of those that are
// effects.
var plainBodies = []struct {
	body any
	port PortName
}{
	{&ReadFiles{}, PortFS}, {&FilesRead{}, ""}, {&ListDir{}, PortFS}, {&DirListed{}, ""},
	{&MakeDir{}, PortFS}, {&WriteFile{}, PortFS}, {&RemoveTree{}, PortFS}, {&Done{}, ""},
	{&ReadTail{}, PortFS}, {&TailRead{}, ""}, {&StatPath{}, PortFS}, {&PathInfo{}, ""},
	{&MakeFile{}, PortFS}, {&WriteDir{}, PortFS}, {&Rename{}, PortFS}, {&MakeLink{}, PortFS},
	{&ReadLinks{}, PortFS}, {&LinksRead{}, ""}, {&Compress{}, PortFS},
	{&ShareWithGroup{}, PortFS}, {&MountMemory{}, PortFS}, {&Unmount{}, PortFS},
	{&BindSubPath{}, PortFS}, {&MeasureTree{}, PortFS}, {&TreeMeasured{}, ""},
	{&Watch{}, PortFS}, {&FileChanged{}, ""},
	{&HTTPGet{}, PortNetwork}, {&HTTPGot{}, ""}, {&TCPConnect{}, PortNetwork},
	{&GRPCCheck{}, PortNetwork}, {&GRPCChecked{}, ""},
	{&FetchManifest{}, PortNetwork}, {&ManifestFetched{}, ""},
	{&WatchObjects{}, PortAPI}, {&UnwatchObjects{}, PortAPI}, {&ObjectsListed{}, ""},
	{&ObjectChanged{}, ""}, {&ObjectGone{}, ""}, {&WatchFailing{}, ""},
	{&GetObject{}, PortAPI}, {&ObjectRead{}, ""}, {&CreateObject{}, PortAPI},
	{&UpdateObject{}, PortAPI}, {&PatchObject{}, PortAPI}, {&DeleteObject{}, PortAPI},
	{&CreateToken{}, PortAPI}, {&TokenCreated{}, ""}, {&RecordEvent{}, PortAPI},
	{&SetCgroup{}, PortHost}, {&RemoveCgroup{}, PortHost}, {&ListCgroups{}, PortHost},
	{&CgroupsListed{}, ""},
	{&Boot{}, ""}, {&Shutdown{}, ""},
	{&PodsRequest{}, ""}, {&PodsAnswer{}, PortRequests},
	{&RunningPodsRequest{}, ""}, {&RunningPodsAnswer{}, PortRequests},
	{&ContainerRequest{}, ""}, {&ContainerAnswer{}, PortRequests},
	{&StateRequest{}, ""}, {&StateAnswer{}, PortRequests},
	{&HealthRequest{}, ""}, {&HealthAnswer{}, PortRequests},
	{&MetricsRequest{}, ""}, {&MetricsAnswer{}, PortRequests},
	{&Log{}, PortLog},
}

type bodyType struct {
	name string
	typ  reflect.Type // of the struct, not the pointer
	port PortName
}

var bodyByType, bodyByName = registerBodies()

func registerBodies() (map[reflect.Type]bodyType, map[string]bodyType) {
	byType, byName := map[reflect.Type]bodyType{}, map[string]bodyType{}
	add := func(body any, port PortName) {
		t := reflect.TypeOf(body).Elem()
		b := bodyType{name: t.Name(), typ: t, port: port}
		if _, twice := byName[b.name]; twice {
			panic("world: two bodies are called " + b.name)
		}
		byType[t], byName[b.name] = b, b
	}
	for _, b := range plainBodies {
		add(b.body, b.port)
	}
	for _, m := range criMessages {
		port := PortCRI
		if !strings.HasSuffix(reflect.TypeOf(m).Elem().Name(), "Request") {
			port = ""
		}
		add(m, port)
	}
	return byType, byName
}

func bodyOf(body any) bodyType {
	t := reflect.TypeOf(body)
	if t == nil || t.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("world: %T is not a body", body))
	}
	b, ok := bodyByType[t.Elem()]
	if !ok {
		panic(fmt.Sprintf("world: %T is not a registered body", body))
	}
	return b
}

// BodyName is the name of a body's type, as in "StopContainerRequest"; empty for nil. It panics
// for anything that is not a registered body.
func BodyName(body any) string {
	if body == nil {
		return ""
	}
	return bodyOf(body).name
}

// Call is the name of the operation an effect asks for, as in "StopContainer" or "ReadFiles".
func Call(body any) string {
	return strings.TrimSuffix(BodyName(body), "Request")
}

// PortOf says which port carries out an effect with this body. It panics for a body that is no
// effect.
func PortOf(body any) PortName {
	b := bodyOf(body)
	if b.port == "" {
		panic("world: " + b.name + " is not an effect")
	}
	return b.port
}

// BodyNames lists the names of all registered bodies in order.
func BodyNames() []string {
	names := make([]string, 0, len(bodyByName))
	for name := range bodyByName { //ordered: sorted below
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// AppendBody appends the canonical form of a body: deterministic protobuf for CRI messages, JSON
// for all others. Equal bodies have equal forms, in every process of one build.
func AppendBody(buf []byte, body any) ([]byte, error) {
	if body == nil {
		return buf, nil
	}
	if m, ok := body.(proto.Message); ok {
		return proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf, m)
	}
	bodyOf(body)
	data, err := json.Marshal(body)
	return append(buf, data...), err
}

// ParseBody reads back what AppendBody wrote for the body of the given name.
func ParseBody(name string, data []byte) (any, error) {
	if name == "" {
		return nil, nil
	}
	body := newBody(name)
	if body == nil {
		return nil, fmt.Errorf("unknown body %q", name)
	}
	if m, ok := body.(proto.Message); ok {
		return body, proto.Unmarshal(data, m)
	}
	return body, json.Unmarshal(data, body)
}

// newBody makes an empty body of the given name; nil if there is none.
func newBody(name string) any {
	b, ok := bodyByName[name]
	if !ok {
		return nil
	}
	return reflect.New(b.typ).Interface()
}
