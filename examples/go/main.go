// Scores rows of raw values with a scorer file, from Go by way of cgo.
//
//	splinefm export model.sfm --to scorer --out model.sfs
//	export CGO_CFLAGS=-I/where/include CGO_LDFLAGS="-L/where/lib -Wl,-rpath,/where/lib"
//	go run . model.sfs recency=3.5 country=US interests=
//
// Every argument is a column and its value: a number, a text, or nothing for a missing value. If the file has an index
// of items, and the row no value for their columns, the best ten items are printed instead.
package main

// #cgo LDFLAGS: -lsplinefm
// #include <splinefm.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

// Scorer is a scorer file; goroutines may share it.
type Scorer struct {
	handle  *C.sfm_scorer
	columns map[string]int
	numbers map[int]bool
}

// Open maps a scorer file.
func Open(path string) (*Scorer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var failure C.sfm_error
	scorer := &Scorer{columns: map[string]int{}, numbers: map[int]bool{}}
	if C.sfm_open(name, &scorer.handle, &failure) != C.SFM_OK {
		return nil, errors.New(C.GoString(&failure.message[0]))
	}
	for i := 0; i < int(C.sfm_n_columns(scorer.handle)); i++ {
		scorer.columns[C.GoString(C.sfm_column_name(scorer.handle, C.size_t(i)))] = i
	}
	for f := 0; f < int(C.sfm_n_fields(scorer.handle)); f++ {
		var field C.sfm_field
		C.sfm_describe_field(scorer.handle, C.size_t(f), &field)
		if field.kind == C.SFM_NUMERICAL {
			scorer.numbers[int(*field.columns)] = true
		}
	}
	return scorer, nil
}

// Close releases the file.
func (scorer *Scorer) Close() { C.sfm_close(scorer.handle) }

// values is a row in C memory, because it holds pointers to texts; call the function that it returns to free them.
func (scorer *Scorer) values(row map[string]string) (*C.sfm_value, func(), error) {
	n := len(scorer.columns)
	memory := C.calloc(C.size_t(n+1), C.size_t(unsafe.Sizeof(C.sfm_value{})))
	kept := []unsafe.Pointer{memory}
	free := func() {
		for _, each := range kept {
			C.free(each)
		}
	}
	values := unsafe.Slice((*C.sfm_value)(memory), n)
	for name, text := range row {
		column, known := scorer.columns[name]
		if !known {
			free()
			return nil, nil, fmt.Errorf("the model has no column %q", name)
		}
		if text == "" {
			values[column] = C.sfm_missing()
			continue
		}
		if number, err := strconv.ParseFloat(text, 64); err == nil && scorer.numbers[column] {
			values[column] = C.sfm_number(C.double(number))
			continue
		}
		bytes := C.CString(text)
		kept = append(kept, unsafe.Pointer(bytes))
		values[column] = C.sfm_text(bytes, C.size_t(len(text)))
	}
	return (*C.sfm_value)(memory), free, nil
}

// Score returns the raw score and the prediction of a row; columns that are not in it are an error.
func (scorer *Scorer) Score(row map[string]string) (score, prediction float64, err error) {
	values, free, err := scorer.values(row)
	if err != nil {
		return 0, 0, err
	}
	defer free()
	var failure C.sfm_error
	if C.sfm_score(scorer.handle, nil, values, 1, (*C.double)(&score), &failure) != C.SFM_OK ||
		C.sfm_predict(scorer.handle, nil, values, 1, (*C.double)(&prediction), &failure) != C.SFM_OK {
		return 0, 0, errors.New(C.GoString(&failure.message[0]))
	}
	return score, prediction, nil
}

// Item is an item of the index, with its raw score.
type Item struct {
	ID    string
	Score float32
}

// TopK returns the best k items of the index for a context, best first.
func (scorer *Scorer) TopK(context map[string]string, k int) ([]Item, error) {
	values, free, err := scorer.values(context)
	if err != nil {
		return nil, err
	}
	defer free()
	if n := int(C.sfm_index_size(scorer.handle)); k > n {
		k = n
	}
	ids, scores := make([]C.sfm_value, k+1), make([]C.float, k+1)
	var found C.size_t
	var failure C.sfm_error
	if C.sfm_index_top_k(scorer.handle, nil, values, C.size_t(k), nil, &ids[0], &scores[0], &found, &failure) != C.SFM_OK {
		return nil, errors.New(C.GoString(&failure.message[0]))
	}
	items := make([]Item, found)
	for i := range items {
		union := unsafe.Pointer(&ids[i].of)
		if ids[i].kind == C.SFM_TEXT {
			items[i].ID = C.GoStringN(*(**C.char)(union), C.int(ids[i].size))
		} else {
			items[i].ID = strconv.FormatInt(*(*int64)(union), 10)
		}
		items[i].Score = float32(scores[i])
	}
	return items, nil
}

// isContext tells whether a row has values for no column of the items.
func (scorer *Scorer) isContext(row map[string]string) bool {
	for name := range row {
		if column, known := scorer.columns[name]; known && C.sfm_index_has_column(scorer.handle, C.size_t(column)) != 0 {
			return false
		}
	}
	return C.sfm_has_index(scorer.handle) != 0
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("usage: score MODEL.sfs COLUMN=VALUE..")
	}
	scorer, err := Open(os.Args[1])
	if err != nil {
		return err
	}
	defer scorer.Close()
	row := map[string]string{}
	for _, argument := range os.Args[2:] {
		name, value, found := strings.Cut(argument, "=")
		if !found {
			return fmt.Errorf("%q must be COLUMN=VALUE", argument)
		}
		row[name] = value
	}
	if scorer.isContext(row) {
		items, err := scorer.TopK(row, 10)
		for _, item := range items {
			fmt.Printf("%s\t%s\n", item.ID, strconv.FormatFloat(float64(item.Score), 'g', 9, 32))
		}
		return err
	}
	score, prediction, err := scorer.Score(row)
	if err != nil {
		return err
	}
	fmt.Println(strconv.FormatFloat(score, 'g', 17, 64))
	fmt.Println(strconv.FormatFloat(prediction, 'g', 17, 64))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
