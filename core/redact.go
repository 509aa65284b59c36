package core

import (
	"bytes"
	"encoding/json"

	"seedlet.dev/world"
)

// redactedSnapshot returns the snapshot as it is served, from which no agent can be restored.
// Everything that may hold a secret is left out: the content of Secrets and ConfigMaps, tokens,
// private keys, the passwords of registries, the manifest URL, which may hold a password, its
// headers, the values of environment variables, the headers of probes and hooks, secrets and tokens
// of CSI volumes, the annotations of service accounts that plugins get, and the hashes of
// passwords, which can be guessed.
//
// The state is encoded once, and the text is copied without its secrets: to decode it and to encode
// it again would take several times as long, and a step of a node with many pods may not.
func (a *Agent) redactedSnapshot() ([]byte, error) {
	data, err := a.Snapshot()
	if err != nil {
		return nil, err
	}
	return redact(data), nil
}

const (
	redactedText          = "[redacted]"
	annotationLastApplied = "kubectl.kubernetes.io/last-applied-configuration" // the whole object
	annotationPreStop     = "io.kubernetes.container.preStopHandler"           // may have headers
)

// redact returns JSON without what may be secret. The JSON has no white space outside of strings,
// as json.Marshal writes it.
func redact(data []byte) []byte {
	r := redactor{data: data, out: make([]byte, 0, len(data))}
	r.copyValue(plainValue)
	return r.out
}

// valueKind is which parts of a JSON value are secret.
type valueKind int

const (
	plainValue   valueKind = iota // those under the keys of secretKinds
	secretString                  // the value, if it is a string
	secretList                    // "value" of each object of a list
	secretItem                    // "value" of an object
	secretObject                  // the values of data, stringData and binaryData of an object
	secretValues                  // all values of an object
	secretValue                   // the whole value, unless it is null
)

// secretKinds are the keys of secrets.
var secretKinds = map[string]valueKind{
	"token": secretString, "password": secretString, "url": secretString,
	"privateKey":          secretString,
	"credentialHash":      secretString,
	annotationLastApplied: secretString, annotationPreStop: secretString,
	world.CSITokensKey: secretString,
	"env":              secretList, "httpHeaders": secretList,
	"secret": secretObject, "configMap": secretObject, "secrets": secretValues,
	"accountAnnotations": secretValues,
}

// ofKey returns the kind of the value that an object of this kind has under a key.
func (k valueKind) ofKey(key []byte) valueKind {
	switch name := string(key); {
	case k == secretItem && name == "value", k == secretValues:
		return secretValue
	case k == secretObject && (name == "data" || name == "stringData" || name == "binaryData"):
		return secretValues
	}
	return secretKinds[string(key)]
}

// redactor copies JSON, and replaces what is secret.
type redactor struct {
	data []byte
	at   int // in data
	out  []byte
}

// copyValue copies the value at the current position.
func (r *redactor) copyValue(kind valueKind) {
	first, begin := r.data[r.at], len(r.out)
	switch first {
	case '{':
		r.copyObject(kind)
	case '[':
		r.copyList(kind)
	case '"':
		r.copyString()
	default:
		for r.at < len(r.data) && r.data[r.at] != ',' && r.data[r.at] != '}' && r.data[r.at] != ']' {
			r.copyByte()
		}
	}
	if kind == secretValue && first != 'n' || kind == secretString && first == '"' {
		r.out = append(append(append(r.out[:begin], '"'), redactedText...), '"')
	}
}

func (r *redactor) copyObject(kind valueKind) {
	for r.copyByte(); r.data[r.at] != '}'; {
		if r.data[r.at] == ',' {
			r.copyByte()
		}
		key := decodeKey(r.copyString())
		r.copyByte() // the colon
		r.copyValue(kind.ofKey(key))
	}
	r.copyByte()
}

func (r *redactor) copyList(kind valueKind) {
	item := plainValue
	if kind == secretList {
		item = secretItem
	}
	for r.copyByte(); r.data[r.at] != ']'; {
		if r.data[r.at] == ',' {
			r.copyByte()
		}
		r.copyValue(item)
	}
	r.copyByte()
}

// copyString copies a string and returns it as it is written, with its quotes.
func (r *redactor) copyString() []byte {
	begin := r.at
	for r.at++; r.data[r.at] != '"'; r.at++ {
		if r.data[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
	r.out = append(r.out, r.data[begin:r.at]...)
	return r.data[begin:r.at]
}

// decodeKey returns the text of a string. A string of the state is valid.
func decodeKey(quoted []byte) []byte {
	if !bytes.ContainsRune(quoted, '\\') {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	_ = json.Unmarshal(quoted, &text)
	return []byte(text)
}

func (r *redactor) copyByte() {
	r.out = append(r.out, r.data[r.at])
	r.at++
}
