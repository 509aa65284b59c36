package world

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"seedlet.dev/world/yamljson"
)

// Documents asks a port for the only document of each file, as JSON, in place of the file's bytes.
// YAML takes a second for each MiB, which no step of the core has.
type Documents struct {
	// Known are the checksums of the files whose documents are not needed again, by name.
	Known map[string]string `json:"known,omitempty"`
	// BytesMax and ValuesMax bound a document; a larger one has an Err of KindExhausted. They also
	// bound the documents of one response after the first: the others are Omitted.
	BytesMax  int `json:"bytesMax"`
	ValuesMax int `json:"valuesMax"`
}

// Convert replaces the bytes of files by their checksums and documents. The hidden files of a
// directory, which editors leave, have no document.
func (d *Documents) Convert(files []File, directory bool) {
	left := *d
	first := true
	for i := range files {
		f := &files[i]
		if f.Err != nil {
			continue
		}
		data := f.Data
		f.Data, f.Sum = nil, sumOf(data)
		switch {
		case d.Known[f.Name] == f.Sum, directory && strings.HasPrefix(f.Name, "."):
		case !first && len(data) > left.BytesMax:
			f.Omitted = true
		default:
			values := 0
			f.Doc, values, f.Err = d.convert("ReadFiles", data)
			if !first && (len(f.Doc) > left.BytesMax || values > left.ValuesMax) {
				f.Doc, f.Err, f.Omitted = nil, nil, true
				left.BytesMax = -1
				continue
			}
			first = false
			left.BytesMax -= max(len(data), len(f.Doc))
			left.ValuesMax -= values
		}
	}
}

// ConvertPage returns the checksum of a page and, unless it is known by an empty name, its
// document.
func (d *Documents) ConvertPage(data []byte) (*ManifestFetched, *Error) {
	page := &ManifestFetched{Sum: sumOf(data)}
	if d.Known[""] == page.Sum {
		return page, nil
	}
	var err *Error
	page.Doc, _, err = d.convert("FetchManifest", data)
	if err != nil {
		return nil, err
	}
	return page, nil
}

// convert returns the document of a file and the number of its values.
func (d *Documents) convert(op string, data []byte) ([]byte, int, *Error) {
	doc, err := yamljson.Parse(data)
	if err != nil {
		return nil, 0, Errorf(KindInvalid, op, "%v", err)
	}
	values := yamljson.CountValues(doc)
	switch {
	case len(doc) > d.BytesMax:
		return nil, 0, Errorf(KindExhausted, op, "the document has %d bytes as JSON, at most %d are "+
			"allowed", len(doc), d.BytesMax)
	case values > d.ValuesMax:
		return nil, 0, Errorf(KindExhausted, op, "the document has %d values, at most %d are allowed",
			values, d.ValuesMax)
	}
	return doc, values, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
